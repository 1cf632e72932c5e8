#include "replay/comparison.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "replay/more_steps.h"
#include "replay/offline.h"
#include "replay/program.h"
#include "sim/clock.h"

namespace innkeeper::replay {
namespace {

constexpr size_t kLast = 4;    // Number of last steps that are averaged.
constexpr size_t kOthers = 5;  // Steps of the alternatives, which need no steps to learn.

StepCost average(const std::vector<StepCost>& steps) {
  const size_t count = std::min(kLast, steps.size());
  StepCost sum;
  for (auto step = steps.end() - static_cast<std::ptrdiff_t>(count); step != steps.end(); ++step) {
    sum.seconds += step->seconds;
    sum.in += step->in;
    sum.out += step->out;
  }
  const auto of = static_cast<int64_t>(std::max<size_t>(count, 1));
  return {sum.seconds / static_cast<double>(of), Bytes(sum.in.count() / of), Bytes(sum.out.count() / of)};
}

// Computes costs with the time of the kernels, plus that of the copies if the program waits for them.
StepCost cost_of(const std::vector<Traffic>& steps, double kernels, const cost::LinkModel* waited) {
  std::vector<StepCost> costs;
  for (const Traffic& step : steps) {
    double seconds = kernels;
    if (waited != nullptr) {
      seconds += static_cast<double>(step.copies) * waited->latency +
                 static_cast<double>((step.in + step.out).count()) / waited->bandwidth;
    }
    costs.push_back({seconds, step.in, step.out});
  }
  return average(costs);
}

// Returns the number of operators in the last step.
int64_t last_step(const trace::AccessRecord& record) {
  int64_t last = 0;
  int64_t now = 0;
  for (const trace::RecordEntry& entry : record.entries) {
    now += entry.kind == trace::RecordEntry::Kind::operation ? 1 : 0;
    if (ends_step(entry)) last = std::exchange(now, 0);
  }
  return last;
}

Status fill(Row& row, const trace::AccessRecord& record, Setup setup, const Comparison& found) {
  setup.budget = row.budget;
  const Result<Played> planned = play(record, setup);
  IK_RETURN_IF_ERROR(planned.status());
  setup.recompute = true;
  const Result<Played> recompute = play(record, setup);
  IK_RETURN_IF_ERROR(recompute.status());
  setup.recompute = false;
  setup.planning = false;
  const Result<Played> on_demand = play(record, setup);
  IK_RETURN_IF_ERROR(on_demand.status());
  setup.policy = make_lru_policy;
  const Result<Played> by_use = play(record, setup);
  IK_RETURN_IF_ERROR(by_use.status());
  const auto paged = traffic(record, row.budget, Leaves::least_recently_used);
  IK_RETURN_IF_ERROR(paged.status());
  const auto farthest = traffic(record, row.budget, Leaves::farthest_next_use);
  IK_RETURN_IF_ERROR(farthest.status());
  row.planned = average(planned.value().steps);
  row.recompute = average(recompute.value().steps);
  row.on_demand = average(on_demand.value().steps);
  row.by_use = average(by_use.value().steps);
  row.pager = cost_of(paged.value(), found.kernels, &setup.link);
  row.offline = cost_of(farthest.value(), found.kernels, nullptr);
  row.roofline = std::max({found.kernels, static_cast<double>(row.offline.in.count()) / setup.link.bandwidth,
                           static_cast<double>(row.offline.out.count()) / setup.link.bandwidth});
  row.host = planned.value().host;
  row.least_in = planned.value().bound;
  return {};
}

}  // namespace

Result<Comparison> compare(const trace::AccessRecord& recorded, const cost::GpuModel& gpu,
                           const cost::LinkModel& link, std::span<const double> shares, int64_t more,
                           double host_bandwidth, const KernelTimes& times) {
  const Result<trace::AccessRecord> extended = with_more_steps(recorded, more);
  IK_RETURN_IF_ERROR(extended.status());
  KernelTimes extended_times = times;
  std::optional<trace::AccessRecord> model;
  if (times.model != nullptr) {
    Result<trace::AccessRecord> longer = with_more_steps(*times.model, more);
    IK_RETURN_IF_ERROR(longer.status());
    extended_times.model = &model.emplace(std::move(longer).value());
  }
  const trace::AccessRecord& record = extended.value();
  Comparison found{.peak = most_alive(record),
                   .operators = last_step(recorded),
                   .kernels = kernel_seconds(record, gpu).back()};
  const RecordedProgram program = last_steps(record, gpu, kOthers);
  for (const double share : shares) {
    Row row{.share = share,
            .budget = Bytes(static_cast<int64_t>(share * static_cast<double>(found.peak.count())))};
    row.fits = fill(row, record, {.gpu = gpu, .link = link, .times = extended_times}, found);
    // An operator that does not fit alone fits under no method.
    if (row.fits.ok()) row.others = alternatives(program, link, row.budget, host_bandwidth);
    if (!row.fits.ok() && row.fits.code() != Code::out_of_memory) return row.fits;
    found.rows.push_back(std::move(row));
  }
  return found;
}

namespace {

Status fill(Varied& row, const trace::AccessRecord& record, Setup setup) {
  setup.budget = row.budget;
  Result<Played> planned = play(record, setup);
  IK_RETURN_IF_ERROR(planned.status());
  setup.planning = false;
  Result<Played> on_demand = play(record, setup);
  IK_RETURN_IF_ERROR(on_demand.status());
  row.planned = std::move(planned.value().steps);
  row.on_demand = std::move(on_demand.value().steps);
  return {};
}

}  // namespace

Result<VariedComparison> compare_as_recorded(const trace::AccessRecord& record, const cost::GpuModel& gpu,
                                             const cost::LinkModel& link, std::span<const double> shares,
                                             const KernelTimes& times) {
  VariedComparison found{.peak = most_alive(record), .kernels = kernel_seconds(record, gpu)};
  if (found.kernels.empty())
    return Status(Code::invalid_argument, "the record has no steps: recording.step() ends one");
  for (const double share : shares) {
    Varied row{.share = share,
               .budget = Bytes(static_cast<int64_t>(share * static_cast<double>(found.peak.count())))};
    row.fits = fill(row, record, {.gpu = gpu, .link = link, .times = times});
    if (!row.fits.ok() && row.fits.code() != Code::out_of_memory) return row.fits;
    found.rows.push_back(std::move(row));
  }
  return found;
}

}  // namespace innkeeper::replay
