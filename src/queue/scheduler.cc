#include "queue/scheduler.h"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "lease/from_snapshot.h"
#include "lease/here.h"
#include "lease/kill_point.h"
#include "lease/process.h"
#include "queue/careful_clock.h"
#include "queue/environment.h"
#include "queue/measure.h"
#include "queue/supervisor.h"
#include "telemetry/snapshot.h"

namespace innkeeper::queue {
namespace {

using Clock = std::chrono::steady_clock;

// Querying the driver for processes takes its lock for milliseconds, so the period is long. While a job is
// young the period is shorter, so that short jobs are measured too.
constexpr std::chrono::seconds kMeasureEach{5}, kMeasureYoungEach{1}, kYoung{10};
constexpr std::chrono::milliseconds kLook{1000};  // Time until the next look if no event arrives.
constexpr std::chrono::milliseconds kSoon{100};   // Time until the GPUs are queried again.
// Jobs pruned per pass while jobs run; a new job waits for this pruning.
constexpr int64_t kPrunedWhileRunning = 100;

// Explains the end of processes that a job's program had left behind.
std::string what_was_left(const Life& life) {
  if (!life.left || !life.left->ended_by_us) return "";
  const Left& left = *life.left;
  return "its program left " + (left.count > 1 ? std::to_string(left.count) + " processes" : "a process") +
         " behind, which " + (left.count > 1 ? "were" : "was") + " ended: " + left.name + " (" +
         std::to_string(left.first) + ")" + (left.count > 1 ? " and others" : "");
}

std::string this_boot() {
  lease::Record record;
  lease::sign(record);
  return record.boot_id;
}

}  // namespace

int usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(CPU_COUNT(&set), 1) : 1;
}

Result<Keep> keep_setting(Store& store) {
  Keep keep;
  const Result<int64_t> age = store.setting(kKeepAgeSetting, std::chrono::nanoseconds(kKeepAge).count());
  if (!age.ok()) return age.status();
  if (age.value() >= 0) keep.age = std::chrono::nanoseconds(age.value());
  const Result<int64_t> jobs = store.setting(kKeepJobsSetting, kKeepJobs);
  if (!jobs.ok()) return jobs.status();
  if (jobs.value() >= 0) keep.jobs = jobs.value();
  return keep;
}

Result<bool> nothing_to_do(Store& store) {
  const Result<std::vector<Running>> running = store.running();
  if (!running.ok()) return running.status();
  if (!running.value().empty()) return false;
  const Result<bool> paused = store.paused();
  if (!paused.ok()) return paused.status();
  if (paused.value()) return true;
  const Result<std::vector<Ready>> without_gpus = store.ready(1);
  if (!without_gpus.ok()) return without_gpus.status();
  const Result<std::vector<Head>> with_gpus = store.heads(1);
  if (!with_gpus.ok()) return with_gpus.status();
  return without_gpus.value().empty() && with_gpus.value().empty();
}

Scheduler::Scheduler(const QueueDirectory& directory, const Program& program, Store store)
    : directory_(directory), program_(program), store_(std::move(store)), boot_id_(this_boot()) {}

Status Scheduler::clear_leftovers() {
  const Result<std::vector<Running>> running = store_.running();
  if (!running.ok()) return running.status();
  std::set<std::string> wanted;
  for (const Running& job : running.value()) wanted.insert(directory_.life(job.id, job.attempt));
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory_.life_directory(), error))
    if (!wanted.contains(entry.path()) && !look(entry.path()).alive) unlink(entry.path().c_str());
  return Status::okay();
}

Status Scheduler::pass() {
  const int64_t version = store_.data_version();
  changed_ = changed_ || version != seen_version_;
  seen_version_ = version;
  IK_RETURN_IF_ERROR(reap());
  const Result<bool> paused = store_.paused();
  if (!paused.ok()) return paused.status();
  if (paused.value()) {
    line_.leave();
    (void)line_.poll();
  } else {
    IK_RETURN_IF_ERROR(take_from_line());
    IK_RETURN_IF_ERROR(start_without_gpus());
    IK_RETURN_IF_ERROR(start_with_gpus());
  }
  // A queue that is never empty is pruned while it runs.
  if (ended_ >= kPrunedWhileRunning)
    if (const Result<bool> pruned = prune(); !pruned.ok())
      log(LogLevel::warn, "the history was not pruned: " + pruned.status().message());
  return measure_running();
}

std::chrono::milliseconds Scheduler::patience() const { return changed_ ? kSoon : kLook; }

Result<bool> Scheduler::prune() {
  ended_ = 0;
  const Result<Keep> keep = keep_setting(store_);
  if (!keep.ok()) return keep.status();
  const Result<int64_t> now = careful_now(store_, boot_id_);
  if (!now.ok()) return now.status();
  const Result<Pruned> some =
      store_.prune(keep.value(), directory_, kPrunedWhileRunning, Care{now.value(), kKeptByAge});
  if (!some.ok()) return some.status();
  const bool more = some.value().jobs > 0;
  if (!more && pruned_) IK_RETURN_IF_ERROR(store_.tidy());
  pruned_ = more;
  return more;
}

Status Scheduler::reap() {
  Result<std::vector<Running>> running = store_.running();
  if (!running.ok()) return running.status();
  const std::vector<Running> before = std::exchange(running_, {});
  for (const Running& job : running.value()) {
    const std::string path = directory_.life(job.id, job.attempt);
    const Life life = look(path);
    if (life.ended) {
      IK_RETURN_IF_ERROR(over(job, *life.ended, what_was_left(life)));
    } else if (life.alive) {
      tell(job, path);
      running_.push_back(job);
    } else if (life.present && !life.began && job.boot_id == boot_id_) {
      // The runner that made the file was killed before the job could begin, and no other process will begin
      // it. (After a power cut the file may lack its content, which proves nothing.)
      IK_RETURN_IF_ERROR(store_.take_back(job.id, job.attempt));
      unlink(path.c_str());
      changed_ = true;
    } else {
      const bool seen = std::any_of(before.begin(), before.end(), [&](const Running& then) {
        return then.id == job.id && then.attempt == job.attempt;
      });
      Ending lost = unseen(job);
      if (seen) lost.ended_ns = wall_clock_ns();  // The job lived at this runner's last look.
      IK_RETURN_IF_ERROR(over(job, lost, why_unseen(job, life)));
    }
  }
  std::erase_if(told_, [&](const auto& entry) {
    return std::none_of(running_.begin(), running_.end(), [&](const Running& job) {
      return job.id == entry.first && job.attempt == entry.second.attempt;
    });
  });
  return Status::okay();
}

// Estimates the end of an attempt that no supervisor recorded. The attempt lived at its last sign: the last
// write to its output, or its supervisor's last touch of the life file.
Ending Scheduler::unseen(const Running& job) const {
  Ending lost;
  lost.ended_ns = job.started_ns;
  for (const std::string& path :
       {directory_.life(job.id, job.attempt), directory_.output(job.id, job.attempt)}) {
    struct stat about {};
    if (stat(path.c_str(), &about) != 0) continue;
    const int64_t sign = int64_t{about.st_mtim.tv_sec} * 1'000'000'000 + about.st_mtim.tv_nsec;
    lost.ended_ns = std::max(lost.ended_ns, sign);
  }
  return lost;
}

std::string Scheduler::why_unseen(const Running& job, const Life& life) const {
  std::string why = "nobody saw it end: ";
  if (job.boot_id != boot_id_)
    why += "the machine was restarted while it ran";
  else if (life.present)
    why += "its supervisor was killed";
  else
    why += "its file in " + directory_.life_directory() + " was removed";
  if (life.left)
    why += "; its program had ended (" + ending_text(life.left->program.how, life.left->program.code) +
           "), what that left had not";
  return why;
}

Status Scheduler::over(const Running& job, const Ending& ending, const std::string& reason) {
  // The job is read before its end is recorded: afterwards any process may prune it.
  Result<Job> whole = store_.get(job.id);
  if (!whole.ok()) return whole.status();
  lease::step("before finish");
  const Result<State> state = store_.finish(job.id, job.attempt, ending, reason);
  if (!state.ok()) return state.status();
  lease::step("finished");
  unlink(directory_.life(job.id, job.attempt).c_str());
  lease::step("life removed");
  changed_ = true;
  directory_.wake();
  if (ended(state.value())) ++ended_;
  if (!ended(state.value()) || whole.value().notify.empty()) return Status::okay();
  whole.value().state = state.value();
  whole.value().code = ending.code;
  notify(whole.value());
  return Status::okay();
}

void Scheduler::tell(const Running& job, const std::string& path) {
  Told& told = told_[job.id];
  if (told.attempt != job.attempt) told = {job.attempt, false, std::nullopt};
  if (job.cancel && !told.cancel) told.cancel = signal_supervisor(path, SIGTERM);
  // A new runner does not know whether the job is stopped, so it signals that once. It signals a stop in each
  // pass: of two pending signals a busy supervisor gets SIGUSR1 first, whichever was sent last.
  if ((job.held || told.held != job.held) && signal_supervisor(path, job.held ? SIGUSR1 : SIGUSR2))
    told.held = job.held;
}

Status Scheduler::start_without_gpus() {
  const Result<int64_t> setting = store_.setting(kSlotsSetting, usable_cpus());
  if (!setting.ok()) return setting.status();
  int64_t used = 0;
  for (const Running& job : running_) used += job.gpus == 0 ? job.cpu_slots : 0;
  const int64_t slots = std::max<int64_t>(setting.value(), 1);
  if (used >= slots) return Status::okay();
  const Result<std::vector<Ready>> ready =
      store_.ready(static_cast<int>(std::min<int64_t>(slots - used, 4096)));
  if (!ready.ok()) return ready.status();
  for (const Ready& job : ready.value()) {
    // A job that needs more slots than exist runs alone.
    if (used > 0 && used + job.cpu_slots > slots) break;
    used += job.cpu_slots;
    IK_RETURN_IF_ERROR(start(job.id, {}));
  }
  return Status::okay();
}

// The life file is created first, so that a running job always has one; if it is
// missing, a user has removed it.
Status Scheduler::start(JobId id, lease::Lease lease) {
  Result<Job> found = store_.get(id);
  if (!found.ok()) return found.status();
  Job& job = found.value();
  if (job.command.empty()) return store_.give_up(id, "its command is lost: the queue's database is damaged");
  const int attempt = job.attempt + 1;
  const std::string path = directory_.life(id, attempt);
  if (!look(path).alive) unlink(path.c_str());  // The file belongs to a claim that was never committed.
  Result<lease::OpenFile> life = begin_life(path);
  if (!life.ok()) return explain(id, life.status().message());
  const Result<bool> claimed = store_.claim(id, attempt, lease.uuids(), boot_id_);
  if (!claimed.ok() || !claimed.value()) {
    unlink(path.c_str());
    return claimed.ok() ? Status::okay() : claimed.status();
  }
  lease::step("claimed");
  Launch launch;
  launch.id = id;
  launch.attempt = attempt;
  launch.command = std::move(job.command);
  launch.directory = std::move(job.directory);
  launch.environment = std::move(job.environment);
  launch.limits = std::move(job.limits);
  launch.time_limit = job.time_limit;
  launch.grace = job.grace;
  launch.linger = job.linger;
  launch.life = std::move(life).value();
  remove_variable(launch.environment, lease::kLeaseVariable);
  remove_variable(launch.environment, lease::kLeasedVariable);
  remove_variable(launch.environment, lease::kDescriptorVariable);
  show_gpus(launch.environment, lease);
  if (job.memory > Bytes(0))
    set_variable(launch.environment, lease::kNodesVariable,
                 lease::nodes_for(job.memory, 1, variable_in(launch.environment, lease::kNodesVariable)));
  set_variable(launch.environment, "INNKEEPER_JOB_ID", std::to_string(id));
  set_variable(launch.environment, "INNKEEPER_JOB_ATTEMPT", std::to_string(attempt));
  launch.lease = std::move(lease);
  const Status status = start_supervisor(std::move(launch), directory_, program_);
  if (!status.ok()) {
    IK_RETURN_IF_ERROR(store_.take_back(id, attempt));
    unlink(path.c_str());
    return explain(id, status.message());
  }
  reasons_.erase(id);
  running_.push_back({id, attempt, false, false, job.gpus, job.cpu_slots, boot_id_, 0});
  if (job.gpus > 0) {
    young_until_ = Clock::now() + kYoung;
    measure_again_ = std::min(measure_again_, Clock::now() + kMeasureYoungEach);
  }
  directory_.wake();
  return Status::okay();
}

Status Scheduler::explain(JobId id, const std::string& reason) {
  std::string& known = reasons_[id];
  if (known == reason) return Status::okay();
  known = reason;
  log(LogLevel::info, "job " + std::to_string(id) + ": " + reason);
  return store_.explain(id, reason);
}

Status Scheduler::measure_running() {
  const auto now = Clock::now();
  if (now < measure_again_) return Status::okay();
  std::vector<Measurable> jobs;
  for (const Running& job : running_) {
    if (job.gpus == 0) continue;
    const Life life = look(directory_.life(job.id, job.attempt));
    if (life.began) jobs.push_back({job.id, job.attempt, life.began->supervisor});
  }
  if (jobs.empty()) return Status::okay();
  measure_again_ = now + (now < young_until_ ? kMeasureYoungEach : kMeasureEach);
  const auto used = measure(jobs, lease::from_snapshot(telemetry::snapshot(telemetry::Wanted::processes)));
  for (const Measurable& job : jobs)
    if (const auto found = used.find(job.id); found != used.end())
      IK_RETURN_IF_ERROR(store_.measured(job.id, job.attempt, found->second));
  return Status::okay();
}

}  // namespace innkeeper::queue
