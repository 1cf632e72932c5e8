#include "queue/queue.h"

#include <signal.h>

#include <algorithm>
#include <filesystem>

#include "base/lines.h"
#include "base/log.h"
#include "lease/kill_point.h"
#include "lease/process.h"
#include "queue/environment.h"
#include "queue/life.h"
#include "queue/limits.h"
#include "queue/measure.h"
#include "queue/mend.h"
#include "queue/salvage.h"
#include "queue/scheduler.h"
#include "queue/sweep.h"
#include "queue/watch.h"

namespace innkeeper::queue {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kAsk{250};  // Period at which a waiting call asks whether to give up.
// Period at which a waiting call makes sure that a runner is alive.
constexpr milliseconds kCheckRunner{1000};
// Jobs pruned in one transaction; other processes may write between two.
constexpr int64_t kPrunedAtOnce = 1000;

}  // namespace

Result<Queue> Queue::open(Program program) {
  Result<std::shared_ptr<const QueueDirectory>> directory = QueueDirectory::open_default();
  if (!directory.ok()) return directory.status();
  return open(directory.value()->path(), std::move(program));
}

Result<Queue> Queue::open(const std::string& path, Program program) {
  Result<std::shared_ptr<const QueueDirectory>> directory = QueueDirectory::open(path);
  if (!directory.ok()) return directory.status();
  Result<Store> store = open_store(*directory.value());
  if (!store.ok()) return store.status();
  return Queue(std::move(directory).value(), std::move(program), std::move(store).value());
}

// Opens the database, and mends it first if its beginning is lost.
Result<Store> Queue::open_store(const QueueDirectory& directory) {
  Result<Store> store = Store::open(directory, Durable::processes);
  if (store.status().code() != Code::damaged) return store;
  const Result<bool> mended = mend(directory);
  if (!mended.ok()) return mended.status();
  return Store::open(directory, Durable::processes);
}

Status Queue::follow_if_moved() {
  if (!store_.moved()) return Status::okay();
  Result<Store> store = open_store(*directory_);
  if (!store.ok()) return store.status();
  store_ = std::move(store).value();
  return Status::okay();
}

template <class Ask>
auto Queue::asking(const Ask& ask) -> decltype(ask()) {
  for (bool is_mended = false;;) {
    IK_RETURN_IF_ERROR(follow_if_moved());
    {
      // A write to a database that has been replaced would be lost.
      const DatabaseStays stays(*directory_);
      if (store_.moved()) continue;
      lease::step("database asked");
      auto answer = ask();
      if (answer.ok() || is_mended || !store_.take_damage()) return answer;
    }
    const Result<bool> mended = mend(*directory_);
    if (!mended.ok()) return mended.status();
    is_mended = true;
  }
}

Status Queue::set(const char* setting, int64_t value) {
  return asking([&] { return store_.set(setting, value); });
}

Result<std::string> Queue::said_of_damage() {
  const KeptDamage kept = kept_damage(*directory_);
  if (kept.path.empty()) return std::string();
  const std::string end = kept.path + " is what it was; this is said until it is removed";
  if (kept.unreadable)
    return "the queue's database could not be read, and a new one was made from its log and the files of "
           "jobs "
           "that had begun; of those that waited some may be lost. " +
           end;
  const Result<int64_t> lost = asking([&] { return store_.setting(kLostSetting, 0); });
  if (!lost.ok()) return lost.status();
  return "the queue's database was damaged and has been mended; " + std::to_string(lost.value()) +
         " jobs are lost. " + end;
}

void Queue::changed() const {
  directory_->wake();
  if (const Status status = ensure_runner(); !status.ok()) log(LogLevel::warn, status.message());
}

Result<std::vector<JobId>> Queue::add(JobSpec spec) {
  std::error_code error;
  if (spec.directory.empty()) spec.directory = std::filesystem::current_path(error);
  if (error) return Status(Code::invalid_argument, "the current directory is gone: " + error.message());
  if (!spec.environment) spec.environment = own_environment();
  if (spec.limits.empty()) spec.limits = own_limits();
  Result<std::vector<JobId>> ids = asking([&] { return store_.add(spec); });
  if (!ids.ok()) return ids;
  directory_->wake();
  if (runner_alive()) return ids;
  const Result<bool> stopped = paused();
  if (stopped.ok() && !stopped.value()) changed();
  return ids;
}

// A new runner first records the jobs that ended unseen, so that later reads are up to date.
Status Queue::catch_up() {
  if (runner_alive()) return Status::okay();
  const Result<bool> idle = asking([&] { return nothing_to_do(store_); });
  if (!idle.ok()) return idle.status();
  return idle.value() ? Status::okay() : ensure_runner();
}

void Queue::catch_up_or_say() {
  if (const Status status = catch_up(); !status.ok())
    log(LogLevel::warn, "no runner: jobs that wait do not start. " + status.message());
}

// Corrects a job by its life file, because the database stays outdated where no runner can be started.
void Queue::judge(JobLine& job, const Life& life) const {
  job.program_ended = life.alive && life.left && !life.ended;
  if (life.alive || runner_alive()) return;  // A living runner records the end in a moment.
  const Ending ending = life.ended.value_or(Ending());
  job.how = ending.how;
  job.code = ending.code;
  job.state = !life.ended                                     ? State::interrupted
              : ending.how == How::exited && ending.code == 0 ? State::done
                                                              : State::failed;
}

Result<std::vector<JobLine>> Queue::list(const Filter& filter) {
  catch_up_or_say();
  Result<std::vector<JobLine>> lines = asking([&] { return store_.list(filter); });
  if (!lines.ok()) return lines;
  for (JobLine& job : lines.value())
    if (job.state == State::running) judge(job, look(directory_->life(job.id, job.attempt)));
  return lines;
}

Result<std::vector<JobLine>> Queue::ended_last(int64_t count) {
  catch_up_or_say();
  return asking([&] { return store_.ended_last(count); });
}

Result<Job> Queue::show(JobId id) {
  catch_up_or_say();
  Result<Job> found = asking([&] { return store_.get(id); });
  if (!found.ok() || found.value().state != State::running) return found;
  Job& job = found.value();
  const Life life = look(directory_->life(id, job.attempt));
  judge(job, life);
  if (!job.program_ended || !life.began) return found;
  job.left = {life.left->program.how, life.left->program.code, life.left->ended_by_us, {}};
  for (const lease::Descendant& each : lease::descendants(life.began->supervisor.pid))
    job.left->processes.push_back(each.name + " (" + std::to_string(each.process.pid) + ")");
  return found;
}

Result<std::string> Queue::log_path(JobId id, int attempt) {
  const Result<JobLine> job = asking([&] { return store_.line(id); });
  if (!job.ok()) return job.status();
  return directory_->output(id, attempt > 0 ? attempt : std::max(job.value().attempt, 1));
}

Status Queue::wait_until(std::optional<milliseconds> limit, const std::function<bool()>& cancelled,
                         const std::function<Result<bool>()>& over) {
  const auto end = Clock::now() + limit.value_or(milliseconds(0));
  auto check_runner = Clock::now();
  Watch watch(*directory_);
  for (;;) {
    const Result<bool> done = over();
    if (!done.ok()) return done.status();
    if (done.value()) return Status::okay();
    const auto now = Clock::now();
    if (limit && now >= end) return Status(Code::busy, "the jobs have not ended in time");
    if (cancelled && cancelled()) return Status(Code::busy, "given up");
    if (now >= check_runner) {
      IK_RETURN_IF_ERROR(catch_up());
      check_runner = now + kCheckRunner;
    }
    milliseconds rest = kAsk;
    if (limit) rest = std::min(rest, std::chrono::duration_cast<milliseconds>(end - now) + milliseconds(1));
    watch.wait(rest);
  }
}

Result<std::vector<JobLine>> Queue::wait(const std::vector<JobId>& ids, std::optional<milliseconds> limit,
                                         const std::function<bool()>& cancelled) {
  std::vector<JobLine> lines(ids.size());
  size_t first = 0;  // All jobs before this index have ended.
  IK_RETURN_IF_ERROR(wait_until(limit, cancelled, [&]() -> Result<bool> {
    for (; first < ids.size(); ++first) {
      Result<JobLine> line = asking([&] { return store_.known(ids[first]); });
      if (!line.ok()) return line.status();
      lines[first] = std::move(line).value();
      if (!ended(lines[first].state)) return false;
    }
    return true;
  }));
  return lines;
}

Status Queue::cancel(const std::vector<JobId>& ids) {
  const Result<std::vector<State>> were = asking([&] { return store_.cancel(ids); });
  if (!were.ok()) return were.status();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (were.value()[i] != State::running) continue;
    const Result<JobLine> job = asking([&] { return store_.line(ids[i]); });
    if (!job.ok()) return job.status();
    // Takes effect at once if the job has begun; otherwise the runner cancels it.
    (void)signal_supervisor(directory_->life(ids[i], job.value().attempt), SIGTERM);
  }
  changed();
  return Status::okay();
}

Status Queue::hold(const std::vector<JobId>& ids, bool held) {
  const Result<int64_t> count = asking([&] { return store_.hold(ids, held); });
  if (!count.ok()) return count.status();
  if (count.value() > 0) changed();
  if (count.value() > 0 || ids.empty()) return Status::okay();
  const Result<JobLine> job = asking([&] { return store_.line(ids[0]); });
  if (!job.ok()) return job.status();
  return Status(Code::invalid_argument, "job " + std::to_string(ids[0]) +
                                            (ids.size() == 1 ? "" : " and all others that were named") +
                                            " has ended: it is " + to_string(job.value().state));
}

Status Queue::pause(const std::vector<JobId>& ids) { return hold(ids, true); }
Status Queue::resume(const std::vector<JobId>& ids) { return hold(ids, false); }

Status Queue::pause_all() {
  IK_RETURN_IF_ERROR(set(kPausedSetting, 1));
  directory_->wake();
  return Status::okay();
}

Status Queue::resume_all() {
  IK_RETURN_IF_ERROR(set(kPausedSetting, 0));
  changed();
  return Status::okay();
}

Result<bool> Queue::paused() {
  return asking([&] { return store_.paused(); });
}

Status Queue::drain(std::optional<milliseconds> limit, const std::function<bool()>& cancelled) {
  IK_RETURN_IF_ERROR(pause_all());
  return wait_until(limit, cancelled, [this]() -> Result<bool> {
    const Result<std::vector<Running>> running = asking([&] { return store_.running(); });
    if (!running.ok()) return running.status();
    return running.value().empty();
  });
}

Result<std::vector<JobId>> Queue::resolve(std::string_view text) {
  const Status form(Code::invalid_argument,
                    "a job is written as 12, 12.0 or 12-14, not '" + std::string(text) + "'");
  int64_t id = 0, second = 0;
  const size_t mark = text.find_first_of(".-");
  if (!read_number(text.substr(0, mark), id)) return form;
  if (mark != std::string_view::npos && !read_number(text.substr(mark + 1), second)) return form;
  if (mark != std::string_view::npos && text[mark] == '-') {
    if (second < id || second - id > 1'000'000) return form;
    std::vector<JobId> ids;
    for (JobId each = id; each <= second; ++each) {
      const Result<JobLine> line = asking([&] { return store_.known(each); });
      if (!line.ok()) return line.status();
      ids.push_back(each);
    }
    return ids;
  }
  const Result<JobLine> line = asking([&] { return store_.known(id); });
  if (!line.ok()) return line.status();
  std::vector<JobId> ids = {id};
  if (line.value().array == id) {
    Result<std::vector<JobId>> all = asking([&] { return store_.members(id); });
    if (!all.ok()) return all.status();
    ids = std::move(all).value();
  }
  if (mark == std::string_view::npos) return ids;
  if (second >= static_cast<int64_t>(ids.size()))
    return Status(Code::invalid_argument, "the array " + std::to_string(id) + " has " +
                                              std::to_string(ids.size()) + " jobs: 0 to " +
                                              std::to_string(ids.size() - 1));
  return std::vector<JobId>{ids[static_cast<size_t>(second)]};
}

Result<Measured> Queue::measured(const std::string& directory, const std::vector<std::string>& command) {
  return asking([&] { return store_.measured_of(directory, command); });
}

Result<std::optional<Bytes>> Queue::proposed_memory(const JobSpec& spec) {
  const Result<std::vector<Values>> tasks = expand(spec.indices, spec.sweep);
  if (!tasks.ok()) return tasks.status();
  Bytes peak;
  for (const Values& values : tasks.value()) {
    const Result<Measured> before = measured(spec.directory, substitute(spec.command, values));
    if (!before.ok()) return before.status();
    peak = std::max(peak, before.value().peak_memory);
  }
  if (peak.count() == 0) return std::optional<Bytes>();
  return std::optional<Bytes>(propose(peak));
}

Result<Pruned> Queue::prune(const Keep& keep) {
  Pruned all;
  for (;;) {
    const Result<Pruned> some = asking([&] { return store_.prune(keep, *directory_, kPrunedAtOnce); });
    if (!some.ok()) return some.status();
    if (some.value().jobs == 0) break;
    all.jobs += some.value().jobs;
    all.output += some.value().output;
  }
  if (all.jobs > 0) IK_RETURN_IF_ERROR(asking([&] { return store_.tidy(); }));
  return all;
}

Result<Keep> Queue::keep() {
  return asking([&] { return keep_setting(store_); });
}

Status Queue::set_keep(const Keep& keep) {
  if ((keep.age && keep.age->count() < 0) || (keep.jobs && *keep.jobs < 0))
    return Status(Code::invalid_argument, "history is kept for no less than 0 seconds, and 0 jobs");
  IK_RETURN_IF_ERROR(set(kKeepAgeSetting, keep.age ? keep.age->count() : -1));
  return set(kKeepJobsSetting, keep.jobs.value_or(-1));
}

Result<int64_t> Queue::cpu_slots() {
  return asking([&] { return store_.setting(kSlotsSetting, usable_cpus()); });
}

Status Queue::set_cpu_slots(int64_t slots) {
  if (slots < 1 || slots > kMostCpuSlots)
    return Status(Code::invalid_argument, std::to_string(slots) + " CPU slots: there are 1 to 1000000");
  IK_RETURN_IF_ERROR(set(kSlotsSetting, slots));
  changed();
  return Status::okay();
}

}  // namespace innkeeper::queue
