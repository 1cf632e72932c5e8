// The part of the scheduler that grants GPUs to jobs.
#include "lease/from_snapshot.h"
#include "queue/environment.h"
#include "queue/scheduler.h"
#include "telemetry/snapshot.h"
#include "telemetry/visible.h"

namespace innkeeper::queue {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTried = 64;  // Most requests that one pass tries; jobs of one shape count one by one.
// Querying the GPUs costs the driver milliseconds, so the runner does not do it for every job that is added.
constexpr std::chrono::milliseconds kGpusNotBefore{100};
// Period of the polling for memory that programs use without a lease; no event reports that use.
constexpr std::chrono::seconds kGpusAgain{5};

lease::By by_named(const std::string& name) {
  for (const lease::By by : {lease::By::ratio, lease::By::power, lease::By::utilization})
    if (name == lease::to_string(by)) return by;
  return lease::By::free;
}

lease::Request request_of(const Job& job) {
  lease::Request request;
  request.count = job.gpus;
  if (job.memory.count() > 0) request.memory = job.memory;
  request.exclusive = job.exclusive;
  request.by = by_named(job.by);
  request.job = "queue " + std::to_string(job.id);
  return request;
}

// Restricts the request to the GPUs that the job's user had when adding the job,
// such as Slurm's or a container's.
void restrict_to_given(lease::Request& request, const Job& job, const telemetry::Snapshot& snapshot) {
  const auto value = [&](const char* name) { return variable_in(job.environment, name); };
  const telemetry::Visible visible = telemetry::visible_with(
      {value(kGpuVariables[0]), value(kGpuVariables[1]), value(kGpuVariables[2]), value(kGpuVariables[3])},
      snapshot);
  if (visible.restricted) request.allowed = visible.uuids;
}

}  // namespace

void show_gpus(std::vector<std::string>& environment, const lease::Lease& lease) {
  const std::vector<std::string> uuids = lease.gpus();
  telemetry::Chosen chosen;
  if (!uuids.empty()) chosen = by_vendor(uuids, telemetry::snapshot(telemetry::Wanted::nothing));
  for (const auto& [name, value] : by_name(showing(chosen, {})))
    if (value) set_variable(environment, name, *value);
}

lease::Arbiter* Scheduler::arbiter(std::string& problem) {
  if (arbiter_ && arbiter_->directory().superseded()) arbiter_.reset();
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
  // start_with_gpus() requests the GPUs again and reports the reason.
  if (!outcome->ok()) return Status::okay();
  const Result<JobLine> job = store_.line(id);
  if (!job.ok()) return job.status();
  const bool ready = job.value().state == State::queued && !job.value().held && job.value().needs == 0;
  return ready ? start(id, std::move(*outcome).value()) : Status::okay();
}

Status Scheduler::start_with_gpus() {
  const auto now = Clock::now();
  if ((!changed_ && now < gpus_again_) || now < gpus_not_before_) return Status::okay();
  changed_ = false;
  gpus_not_before_ = now + kGpusNotBefore;
  gpus_again_ = now + kGpusAgain;
  const Result<std::vector<Head>> heads = store_.heads(kTried);
  if (!heads.ok()) return heads.status();
  std::string problem;
  lease::Arbiter* const leases = heads.value().empty() ? nullptr : arbiter(problem);
  if (leases == nullptr) {
    line_.leave();
    for (const Head& head : heads.value()) IK_RETURN_IF_ERROR(explain(head.id, problem));
    return Status::okay();
  }
  std::map<Head, Job> waiting;  // First job of each shape that may still be granted its GPUs.
  auto wanted = telemetry::Wanted::nothing;
  for (const Head& head : heads.value()) {
    Result<Job> job = store_.get(head.id);
    if (!job.ok()) return job.status();
    wanted = wanted | lease::wanted_for(request_of(job.value()));
    waiting.emplace(head, std::move(job).value());
  }
  const telemetry::Snapshot snapshot = telemetry::snapshot(wanted);
  const lease::Machine machine = lease::from_snapshot(snapshot);

  std::optional<std::pair<JobId, lease::Request>> first;  // First job whose GPUs are busy, with its request.
  for (int tries = 0; !waiting.empty(); ++tries) {
    if (tries == kTried) {
      changed_ = true;  // The next pass comes soon and tries the rest.
      break;
    }
    const auto [head, job] = std::move(*waiting.begin());
    waiting.erase(waiting.begin());
    lease::Request request = request_of(job);
    restrict_to_given(request, job, snapshot);
    Result<lease::Lease> lease = line_.job() == job.id
                                     ? Result<lease::Lease>(Status(Code::busy, reasons_[job.id]))
                                     : leases->acquire(request, machine);
    const bool granted = lease.ok();
    // A request that the machine cannot meet while a GPU is lost may succeed once the GPU returns.
    const bool never = !granted && lease.status().code() == Code::invalid_argument && snapshot.lost.empty();
    if (granted) {
      IK_RETURN_IF_ERROR(start(job.id, std::move(lease).value()));
    } else if (never) {
      IK_RETURN_IF_ERROR(store_.give_up(job.id, lease.status().message()));
      directory_.wake();
    } else {
      IK_RETURN_IF_ERROR(explain(job.id, lease.status().message()));
      if (!first && lease.status().code() == Code::busy) first = {job.id, std::move(request)};
      continue;  // The arbiter would refuse the other jobs of this shape as well.
    }
    const Result<std::optional<Head>> next = store_.head(head.shape);
    if (!next.ok()) return next.status();
    if (!next.value() || next.value()->id == job.id) continue;  // The job could not be started.
    Result<Job> other = store_.get(next.value()->id);
    if (!other.ok()) return other.status();
    waiting.emplace(*next.value(), std::move(other).value());
  }
  if (!first || (line_.job() != 0 && line_.job() != first->first)) {
    line_.leave();
  } else if (line_.job() == 0) {
    const auto ask = lease::wanted_for(first->second);
    line_.stand(first->first, *leases, first->second,
                [ask]() -> Result<lease::Machine> { return lease::from_snapshot(telemetry::snapshot(ask)); });
  }
  return Status::okay();
}

}  // namespace innkeeper::queue
