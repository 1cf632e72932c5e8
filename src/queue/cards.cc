// The half of the scheduler that deals with cards.
#include "lease/from_snapshot.h"
#include "queue/environment.h"
#include "queue/scheduler.h"
#include "telemetry/snapshot.h"
#include "telemetry/visible.h"

namespace innkeeper::queue {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTried = 64;  // ready jobs that are looked at for cards at once
// A look at the cards costs the driver milliseconds: not at every job that is added.
constexpr std::chrono::milliseconds kCardsNotBefore{100};
// How often to look again at what no event tells of: memory that others use without a lease.
constexpr std::chrono::seconds kCardsAgain{5};

lease::By by_named(const std::string& name) {
  for (const lease::By by : {lease::By::ratio, lease::By::power, lease::By::utilization})
    if (name == lease::to_string(by)) return by;
  return lease::By::free;
}

lease::Request request_of(const Job& job) {
  lease::Request request;
  request.count = job.cards;
  if (job.memory.count() > 0) request.memory = job.memory;
  request.exclusive = job.exclusive;
  request.by = by_named(job.by);
  request.job = "queue " + std::to_string(job.id);
  return request;
}

// The cards that the job's user was given where it was added: Slurm's, a container's.
void restrict_to_given(lease::Request& request, const Job& job, const telemetry::Snapshot& snapshot) {
  const auto value = [&](const char* name) { return variable_in(job.environment, name); };
  const telemetry::Visible visible =
      telemetry::visible_with({value("CUDA_VISIBLE_DEVICES"), value("ROCR_VISIBLE_DEVICES"),
                               value("HIP_VISIBLE_DEVICES"), value("CUDA_DEVICE_ORDER")},
                              snapshot);
  if (visible.restricted) request.allowed = visible.uuids;
}

// Requests that are granted or refused alike.
std::string shape_of(const lease::Request& request) {
  std::string shape;
  for (const std::string& option : lease::to_options(request)) shape += option + " ";
  if (request.allowed)
    for (const std::string& uuid : *request.allowed) shape += "," + uuid;
  return shape;
}

}  // namespace

void show_cards(std::vector<std::string>& environment, const lease::Lease& lease) {
  const std::vector<std::string> uuids = lease.cards();
  telemetry::Chosen chosen;
  if (!uuids.empty()) chosen = by_maker(uuids, telemetry::snapshot(telemetry::Wanted::nothing));
  for (const auto& [name, value] : by_name(showing(chosen, {})))
    if (value) set_variable(environment, name, *value);
}

lease::Arbiter* Scheduler::arbiter(std::string& problem) {
  if (!arbiter_) {
    Result<lease::Arbiter> opened = lease::Arbiter::open();
    if (!opened.ok()) {
      problem = opened.status().message();
      return nullptr;
    }
    arbiter_ = std::move(opened).value();
  }
  return &*arbiter_;
}

Status Scheduler::take_from_line() {
  const JobId id = line_.job();
  std::optional<Result<lease::Lease>> outcome = line_.poll();
  if (!outcome) return Status::okay();
  changed_ = true;
  if (!outcome->ok()) return Status::okay();  // start_with_cards() asks again, and says why
  const Result<JobLine> job = store_.line(id);
  if (!job.ok()) return job.status();
  const bool ready = job.value().state == State::queued && !job.value().held && job.value().needs == 0;
  return ready ? start(id, std::move(*outcome).value()) : Status::okay();
}

Status Scheduler::start_with_cards() {
  const auto now = Clock::now();
  if ((!changed_ && now < cards_again_) || now < cards_not_before_) return Status::okay();
  changed_ = false;
  cards_not_before_ = now + kCardsNotBefore;
  cards_again_ = now + kCardsAgain;
  const Result<std::vector<Ready>> ready = store_.ready(true, kTried);
  if (!ready.ok()) return ready.status();
  std::string problem;
  lease::Arbiter* const leases = ready.value().empty() ? nullptr : arbiter(problem);
  if (leases == nullptr) {
    line_.leave();
    for (const Ready& job : ready.value()) IK_RETURN_IF_ERROR(explain(job.id, problem));
    return Status::okay();
  }
  std::vector<Job> jobs;
  auto wanted = telemetry::Wanted::nothing;
  for (const Ready& entry : ready.value()) {
    Result<Job> job = store_.get(entry.id);
    if (!job.ok()) return job.status();
    jobs.push_back(std::move(job).value());
    wanted = wanted | lease::wanted_for(request_of(jobs.back()));
  }
  const telemetry::Snapshot snapshot = telemetry::snapshot(wanted);
  const lease::Machine machine = lease::from_snapshot(snapshot);

  std::set<std::string> refused;
  const Job* first = nullptr;  // of those who cannot have their cards now
  lease::Request first_request;
  for (const Job& job : jobs) {
    lease::Request request = request_of(job);
    restrict_to_given(request, job, snapshot);
    const std::string shape = shape_of(request);
    if (refused.contains(shape)) continue;
    Result<lease::Lease> lease = line_.job() == job.id
                                     ? Result<lease::Lease>(Status(Code::busy, reasons_[job.id]))
                                     : leases->acquire(request, machine);
    if (lease.ok()) {
      IK_RETURN_IF_ERROR(start(job.id, std::move(lease).value()));
      continue;
    }
    if (lease.status().code() == Code::invalid_argument) {
      IK_RETURN_IF_ERROR(store_.give_up(job.id, lease.status().message()));
      folder_.wake();
      continue;
    }
    IK_RETURN_IF_ERROR(explain(job.id, lease.status().message()));
    refused.insert(shape);
    if (first != nullptr || lease.status().code() != Code::busy) continue;
    first = &job;
    first_request = std::move(request);
  }
  if (first == nullptr || (line_.job() != 0 && line_.job() != first->id)) {
    line_.leave();
  } else if (line_.job() == 0) {
    const auto ask = lease::wanted_for(first_request);
    line_.stand(first->id, *leases, first_request,
                [ask]() -> Result<lease::Machine> { return lease::from_snapshot(telemetry::snapshot(ask)); });
  }
  return Status::okay();
}

}  // namespace innkeeper::queue
