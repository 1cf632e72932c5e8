#include "queue/store.h"

#include <algorithm>

#include "base/clock.h"
#include "base/lines.h"
#include "lease/kill_point.h"
#include "lease/process.h"
#include "lease/record.h"
#include "lease/request.h"
#include "queue/environment.h"
#include "queue/mend.h"
#include "queue/salvage.h"
#include "queue/schema.h"
#include "queue/sweep.h"
#include "queue/values.h"

namespace innkeeper::queue {
namespace {

constexpr size_t kTitle = 60;  // Longest title, bytes.

int64_t signed_hash(std::string_view text) { return static_cast<int64_t>(fnv1a(text)); }

std::string shortened(const std::string& text, size_t most) {
  return text.size() > most ? text.substr(0, most - 3) + "..." : text;
}

// Returns text such as "lr=0.1 index=3". Long values, for example paths, differ at
// their ends, so the end is shown.
std::string values_text(const Values& values) {
  constexpr size_t kValue = 20;
  std::string text;
  for (const auto& [name, value] : values)
    text += (text.empty() ? "" : " ") + name + "=" +
            (value.size() > kValue ? "..." + value.substr(value.size() - kValue + 3) : value);
  return lease::printable(text);
}

// A job of an array or sweep is told from its neighbours by its values: "NAME lr=0.1", "lr=0.1: python
// train.py ...". A terminal may cut off a line's end, so a long command follows its values.
std::string title_of(const JobSpec& spec, const std::vector<std::string>& command, const Values& values) {
  std::string title = spec.name;
  if (title.empty())
    for (const std::string& word : command) {
      title += (title.empty() ? "" : " ") + word;
      if (title.size() > kTitle) break;
    }
  title = lease::printable(title);
  const std::string told = values_text(values);
  if (!told.empty()) {
    constexpr size_t kLeastName = 20;
    const size_t space = kTitle - std::min(kTitle - kLeastName, told.size() + 1);
    title = spec.name.empty() ? told + ": " + title : shortened(title, space) + " " + told;
  }
  return shortened(title, kTitle);
}

// Hash of the parts of a request that decide a grant: if one request of a shape is
// refused now, so are the others.
int64_t shape_of(const JobSpec& spec, const std::vector<std::string>& changes) {
  if (!spec.gpus) return 0;
  std::vector<std::string> words = lease::to_options(*spec.gpus);
  for (const char* name : kGpuVariables) {
    std::optional<std::string> value = variable_in(changes, name);
    if (!value && spec.environment) value = variable_in(*spec.environment, name);
    if (value) words.push_back(name + ("=" + *value));
  }
  return signed_hash(join_words(words));
}

Status sensible(const JobSpec& spec) {
  const auto wrong = [](const char* what) { return Status(Code::invalid_argument, what); };
  if (spec.command.empty() || spec.command[0].empty()) return wrong("a job needs a command");
  for (const std::string& word : spec.command)
    if (word.find('\0') != std::string::npos) return wrong("a word of a command cannot hold a NUL");
  if (spec.directory.empty() || spec.directory[0] != '/') return wrong("a job needs an absolute directory");
  if (spec.gpus) IK_RETURN_IF_ERROR(lease::check(*spec.gpus));
  if (spec.cpu_slots < 1 || spec.cpu_slots > 1'000'000) return wrong("a job takes at least one CPU slot");
  if (spec.retries < 0 || spec.retries > 1'000'000) return wrong("retries are a number from 0 on");
  if (spec.time_limit && spec.time_limit->count() <= 0) return wrong("a time limit is more than nothing");
  if (spec.grace.count() < 0 || spec.grace.count() > kMostMs)
    return wrong("a grace is no less than nothing, and no more than can be waited for");
  return Status::okay();
}

}  // namespace

std::string join_words(const std::vector<std::string>& words) {
  std::string bytes;
  for (const std::string& word : words) bytes.append(word).push_back('\0');
  return bytes;
}

std::vector<std::string> split_words(std::string_view bytes) {
  std::vector<std::string> words;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = std::min(bytes.find('\0', at), bytes.size());
    words.emplace_back(bytes.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

Result<Store> Store::open(const QueueDirectory& directory, Durable durable) {
  // Otherwise SQLite could take the log of a newly placed database for that of its predecessor.
  const DatabaseStays stays(directory);
  Result<Database> database =
      Database::open(directory.database(), durable, kSchema, [&] { return !has_traces(directory); });
  if (!database.ok()) return database.status();
  return Store(std::move(database).value());
}

Result<int64_t> Store::intern_environment(const std::string& bytes, const std::string& limits) {
  const int64_t hash = signed_hash(bytes);
  Query find(*database_, "SELECT id FROM environments WHERE hash=? AND bytes=? AND limits=?");
  if (find.with(hash).with_blob(bytes).with_blob(limits).step()) return find.integer(0);
  IK_RETURN_IF_ERROR(find.status());
  Query insert(*database_, "INSERT INTO environments(hash, bytes, limits) VALUES(?, ?, ?)");
  IK_RETURN_IF_ERROR(insert.with(hash).with_blob(bytes).with_blob(limits).run());
  return database_->last_id();
}

Result<int64_t> Store::intern_command(const std::string& directory, const std::string& words) {
  const int64_t hash = signed_hash(words);
  Query find(*database_, "SELECT id FROM commands WHERE hash=? AND words=? AND directory=?");
  if (find.with(hash).with_blob(words).with_blob(directory).step()) return find.integer(0);
  IK_RETURN_IF_ERROR(find.status());
  Query insert(*database_, "INSERT INTO commands(hash, words, directory) VALUES(?, ?, ?)");
  IK_RETURN_IF_ERROR(insert.with(hash).with_blob(words).with_blob(directory).run());
  return database_->last_id();
}

// Counts the needs that have not ended.
Result<int> Store::unmet(const std::vector<Need>& after) {
  int count = 0;
  for (const Need& need : after) {
    const Result<JobLine> other = known(need.job);
    if (!other.ok()) return other.status();
    const State state = other.value().state;
    if (!ended(state)) ++count;
    if (ended(state) && state != State::done && !need.any)
      return Status(Code::invalid_argument, "job " + std::to_string(need.job) + " did not succeed (it is " +
                                                to_string(state) + "), so nothing can run after its success");
  }
  return count;
}

Result<std::vector<JobId>> Store::add(const JobSpec& spec) {
  IK_RETURN_IF_ERROR(sensible(spec));
  const Result<std::vector<Values>> tasks = expand(spec.indices, spec.sweep);
  if (!tasks.ok()) return tasks.status();
  std::vector<Need> after = spec.after;
  std::sort(after.begin(), after.end(),
            [](const Need& a, const Need& b) { return a.job != b.job ? a.job < b.job : a.any < b.any; });
  after.erase(
      std::unique(after.begin(), after.end(), [](const Need& a, const Need& b) { return a.job == b.job; }),
      after.end());  // Of the two needs "succeeded" and "ended" of one job the stricter stays.
  const std::string environment = join_words(spec.environment.value_or(std::vector<std::string>()));
  const bool many = !spec.indices.empty() || !spec.sweep.empty();
  const int64_t now = wall_clock_ns();

  Transaction transaction(*database_);
  IK_RETURN_IF_ERROR(transaction.status());
  const Result<int> waits = unmet(after);
  if (!waits.ok()) return waits.status();
  const Result<int64_t> environment_id = intern_environment(environment, spec.limits);
  if (!environment_id.ok()) return environment_id.status();
  std::vector<JobId> ids;
  for (const Values& values : tasks.value()) {
    const std::vector<std::string> command = substitute(spec.command, values);
    const Result<int64_t> command_id = intern_command(spec.directory, join_words(command));
    if (!command_id.ok()) return command_id.status();
    Query job(*database_,
              "INSERT INTO jobs(array, priority, gpus, memory, unmet, added, title, slots, retries, command, "
              "environment, shape) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
    const std::string title = title_of(spec, command, values);
    job.with(ids.empty() ? 0 : ids[0])
        .with(int64_t{spec.priority})
        .with(int64_t{spec.gpus ? spec.gpus->count : 0});
    job.with(spec.gpus && spec.gpus->memory ? spec.gpus->memory->count() : 0).with(int64_t{waits.value()});
    job.with(now).with_blob(title).with(int64_t{spec.cpu_slots}).with(int64_t{spec.retries});
    const std::vector<std::string> changes = variables(values);
    job.with(command_id.value()).with(environment_id.value()).with(shape_of(spec, changes));
    IK_RETURN_IF_ERROR(job.run());
    const JobId id = database_->last_id();
    if (many && ids.empty()) {
      Query self(*database_, "UPDATE jobs SET array=id WHERE id=?");
      IK_RETURN_IF_ERROR(self.with(id).run());
    }
    ids.push_back(id);
    const std::string changed = join_words(changes);
    Query details(*database_,
                  "INSERT INTO details(job, variables, by_mode, exclusive, time_limit_ms, grace_ms, linger, "
                  "notify) VALUES(?, ?, ?, ?, ?, ?, ?, ?)");
    details.with(id).with_blob(changed).with(
        static_cast<int64_t>(spec.gpus ? spec.gpus->by : lease::By::free));
    details.with(int64_t{!spec.gpus || !spec.gpus->exclusive ? -1 : *spec.gpus->exclusive});
    details.with(spec.time_limit ? spec.time_limit->count() : 0).with(spec.grace.count());
    details.with(int64_t{spec.linger}).with_blob(spec.notify);
    IK_RETURN_IF_ERROR(details.run());
    for (const Need& need : after) {
      Query row(*database_, "INSERT INTO needs(job, needs, any_end) VALUES(?, ?, ?)");
      IK_RETURN_IF_ERROR(row.with(id).with(need.job).with(int64_t{need.any}).run());
    }
  }
  lease::step("before add commit");
  IK_RETURN_IF_ERROR(transaction.commit());
  lease::step("added");
  return ids;
}

// Ends a queued or running job for good. Requires: a transaction is open.
Status Store::end(JobId id, State state, const std::string& reason, int64_t ended_ns) {
  IK_RETURN_IF_ERROR(mark(id, state, reason, ended_ns));
  return settle(id, state == State::done);
}

Status Store::mark(JobId id, State state, const std::string& reason, int64_t ended_ns) {
  Query job(*database_, "UPDATE jobs SET state=?, ended=?, held=0 WHERE id=?");
  IK_RETURN_IF_ERROR(job.with(static_cast<int64_t>(state)).with(ended_ns).with(id).run());
  return reason.empty() ? Status::okay() : explain(id, reason);
}

// Releases the jobs that need this one, or ends them because they can never run, and
// so on through their dependents.
Status Store::settle(JobId id, bool succeeded) {
  std::vector<std::pair<JobId, bool>> waiting{{id, succeeded}};
  while (!waiting.empty()) {
    const auto [job, good] = waiting.back();
    waiting.pop_back();
    Query met(*database_,
              "UPDATE jobs SET unmet=unmet-1 WHERE state=0 AND id IN "
              "(SELECT job FROM needs WHERE needs=? AND (any_end=1 OR ?))");
    IK_RETURN_IF_ERROR(met.with(job).with(int64_t{good}).run());
    if (good) continue;
    std::vector<JobId> hopeless;
    Query find(*database_,
               "SELECT job FROM needs JOIN jobs ON jobs.id=needs.job "
               "WHERE needs=? AND any_end=0 AND state=0");
    find.with(job);
    while (find.step()) hopeless.push_back(find.integer(0));
    IK_RETURN_IF_ERROR(find.status());
    for (const JobId other : hopeless) {
      IK_RETURN_IF_ERROR(
          mark(other, State::cancelled, "job " + std::to_string(job) + " did not succeed", wall_clock_ns()));
      waiting.emplace_back(other, false);
    }
  }
  return Status::okay();
}

Result<bool> Store::claim(JobId id, int attempt, const std::string& gpus, const std::string& boot_id) {
  const int64_t now = wall_clock_ns();
  Transaction transaction(*database_);
  IK_RETURN_IF_ERROR(transaction.status());
  const Result<bool> stopped = paused();
  if (!stopped.ok()) return stopped.status();
  if (stopped.value()) return false;
  Query job(*database_,
            "UPDATE jobs SET state=1, attempt=?1, started=?2, ended=0, cancel=0 "
            "WHERE id=?3 AND attempt=?1-1 AND state=0 AND held=0 AND unmet=0");
  IK_RETURN_IF_ERROR(job.with(int64_t{attempt}).with(now).with(id).run());
  if (database_->changes() == 0) return false;
  Query row(*database_,
            "INSERT INTO attempts(job, number, started, gpus, how, boot) VALUES(?, ?, ?, ?, ?, ?)");
  row.with(id).with(int64_t{attempt}).with(now).with_blob(gpus).with(static_cast<int64_t>(How::unknown));
  IK_RETURN_IF_ERROR(row.with_blob(boot_id).run());
  IK_RETURN_IF_ERROR(explain(id, ""));  // Clears the reason for which the job waited.
  IK_RETURN_IF_ERROR(transaction.commit());
  return true;
}

Result<State> Store::finish(JobId id, int attempt, const Ending& ending, const std::string& reason) {
  const int64_t now = wall_clock_ns();
  const int64_t ended_ns =
      ending.ended_ns > 0 ? std::min(ending.ended_ns, now) : now;  // A damaged file may contain any time.
  Transaction transaction(*database_);
  IK_RETURN_IF_ERROR(transaction.status());
  State state = State::queued;
  bool cancelled = false;
  int64_t retries = 0;
  {
    Query job(*database_, "SELECT state, attempt, cancel, retries FROM jobs WHERE id=?");
    if (!job.with(id).step())
      return job.status().ok() ? Status(Code::invalid_argument, "no such job") : job.status();
    state = state_of(job.integer(0));
    if (state != State::running || job.integer(1) != attempt) return state;
    cancelled = job.integer(2) != 0;
    retries = job.integer(3);
  }
  Query row(*database_, "UPDATE attempts SET ended=?, how=?, code=?, peak_host=? WHERE job=? AND number=?");
  row.with(ended_ns).with(static_cast<int64_t>(ending.how)).with(int64_t{ending.code});
  IK_RETURN_IF_ERROR(row.with(ending.peak_host.count()).with(id).with(int64_t{attempt}).run());
  Query peaks(*database_,
              "UPDATE commands SET runs=runs+1, peak_host=max(peak_host, ?), peak_memory=max(peak_memory, "
              "(SELECT peak_memory FROM attempts WHERE job=? AND number=?)) "
              "WHERE id=(SELECT command FROM jobs WHERE id=?)");
  IK_RETURN_IF_ERROR(peaks.with(ending.peak_host.count()).with(id).with(int64_t{attempt}).with(id).run());
  Query last(*database_, "UPDATE jobs SET how=?, code=?, ended=? WHERE id=?");
  last.with(static_cast<int64_t>(ending.how)).with(int64_t{ending.code});
  IK_RETURN_IF_ERROR(last.with(ended_ns).with(id).run());
  IK_RETURN_IF_ERROR(explain(id, reason));
  const bool good = ending.how == How::exited && ending.code == 0;
  if (!good && !cancelled && retries > 0) {
    state = State::queued;
    Query again(*database_, "UPDATE jobs SET state=0, retries=retries-1 WHERE id=?");
    IK_RETURN_IF_ERROR(again.with(id).run());
  } else {
    state = good                         ? State::done
            : cancelled                  ? State::cancelled
            : ending.how == How::unknown ? State::interrupted
                                         : State::failed;
    IK_RETURN_IF_ERROR(end(id, state, "", ended_ns));
  }
  IK_RETURN_IF_ERROR(transaction.commit());
  return state;
}

Status Store::take_back(JobId id, int attempt) {
  Transaction transaction(*database_);
  IK_RETURN_IF_ERROR(transaction.status());
  bool cancelled = false;
  {
    Query job(*database_, "SELECT cancel FROM jobs WHERE id=? AND state=1 AND attempt=?");
    if (!job.with(id).with(int64_t{attempt}).step()) return job.status();
    cancelled = job.integer(0) != 0;
  }
  Query row(*database_, "DELETE FROM attempts WHERE job=? AND number=?");
  IK_RETURN_IF_ERROR(row.with(id).with(int64_t{attempt}).run());
  if (cancelled) {
    IK_RETURN_IF_ERROR(end(id, State::cancelled, "", wall_clock_ns()));
  } else {
    Query back(*database_, "UPDATE jobs SET state=0 WHERE id=?");
    IK_RETURN_IF_ERROR(back.with(id).run());
  }
  return transaction.commit();
}

Status Store::measured(JobId id, int attempt, Bytes peak_memory) {
  Query row(*database_, "UPDATE attempts SET peak_memory=max(peak_memory, ?) WHERE job=? AND number=?");
  return row.with(peak_memory.count()).with(id).with(int64_t{attempt}).run();
}

Result<std::vector<State>> Store::cancel(const std::vector<JobId>& ids) {
  Transaction transaction(*database_);
  IK_RETURN_IF_ERROR(transaction.status());
  std::vector<State> states;
  for (const JobId id : ids) {
    const Result<JobLine> now = line(id);
    if (!now.ok()) return now.status();
    states.push_back(now.value().state);
    if (states.back() == State::queued)
      IK_RETURN_IF_ERROR(end(id, State::cancelled, "cancelled by its user", wall_clock_ns()));
    if (states.back() == State::running) {
      Query note(*database_, "UPDATE jobs SET cancel=1 WHERE id=?");
      IK_RETURN_IF_ERROR(note.with(id).run());
    }
  }
  IK_RETURN_IF_ERROR(transaction.commit());
  return states;
}

Status Store::give_up(JobId id, const std::string& reason) {
  Transaction transaction(*database_);
  IK_RETURN_IF_ERROR(transaction.status());
  const Result<JobLine> now = line(id);
  if (!now.ok()) return now.status();
  if (now.value().state == State::queued) IK_RETURN_IF_ERROR(end(id, State::failed, reason, wall_clock_ns()));
  return transaction.commit();
}

Status Store::explain(JobId id, const std::string& reason) {
  Query details(*database_, "UPDATE details SET reason=? WHERE job=?");
  return details.with_blob(reason).with(id).run();
}

Result<int64_t> Store::hold(const std::vector<JobId>& ids, bool held) {
  Transaction transaction(*database_);
  IK_RETURN_IF_ERROR(transaction.status());
  int64_t count = 0;
  for (const JobId id : ids) {
    if (const Result<JobLine> now = line(id); !now.ok()) return now.status();
    Query job(*database_, "UPDATE jobs SET held=? WHERE id=? AND state<=1");
    IK_RETURN_IF_ERROR(job.with(int64_t{held}).with(id).run());
    count += database_->changes();
  }
  IK_RETURN_IF_ERROR(transaction.commit());
  return count;
}

Status Store::set_all(const std::vector<std::pair<std::string, int64_t>>& values) {
  Transaction transaction(*database_);
  IK_RETURN_IF_ERROR(transaction.status());
  for (const auto& [name, value] : values) IK_RETURN_IF_ERROR(set(name, value));
  return transaction.commit();
}

Status Store::set(const std::string& name, int64_t value) {
  Query query(
      *database_,
      "INSERT INTO settings(name, value) VALUES(?, ?) ON CONFLICT(name) DO UPDATE SET value=excluded.value");
  return query.with_blob(name).with(value).run();
}

}  // namespace innkeeper::queue
