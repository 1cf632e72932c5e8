// The part of the store that reads.
#include <string.h>

#include <algorithm>

#include "base/lines.h"
#include "lease/record.h"
#include "lease/request.h"
#include "queue/environment.h"
#include "queue/store.h"
#include "queue/values.h"

namespace innkeeper::queue {
namespace {

constexpr int kMostShapes = 4096;  // Limit on the shapes examined per pass; they take a few milliseconds.

#define IK_LINE_COLUMNS \
  "SELECT id, array, state, held, how, code, priority, gpus, memory, attempt, unmet, added, started, " \
  "ended, " \
  "title FROM jobs "

void read_line(const Query& row, JobLine& line) {
  line.id = row.integer(0);
  line.array = row.integer(1);
  line.state = state_of(row.integer(2));
  line.held = row.integer(3) != 0;
  line.how = how_of(row.integer(4));
  line.code = number_of(row.integer(5));
  line.priority = number_of(row.integer(6));
  line.gpus = count_of(row.integer(7));
  line.memory = bytes_of(row.integer(8));
  line.attempt = count_of(row.integer(9));
  line.needs = count_of(row.integer(10));
  line.added_ns = time_of(row.integer(11));
  line.started_ns = time_of(row.integer(12));
  line.ended_ns = time_of(row.integer(13));
  line.title = lease::printable(row.text(14));
}

Result<std::vector<JobLine>> read_lines(Query& query) {
  std::vector<JobLine> lines;
  while (query.step()) read_line(query, lines.emplace_back());
  IK_RETURN_IF_ERROR(query.status());
  return lines;
}

}  // namespace

const char* to_string(State state) {
  switch (state) {
    case State::queued: return "queued";
    case State::running: return "running";
    case State::done: return "done";
    case State::failed: return "failed";
    case State::cancelled: return "cancelled";
    case State::interrupted: return "interrupted";
  }
  return "unknown";
}

const char* to_string(How how) {
  switch (how) {
    case How::exited: return "exited";
    case How::signalled: return "signalled";
    case How::time_limit: return "time limit";
    case How::stopped: return "stopped";
    case How::not_started: return "not started";
    case How::unknown: return "unknown";
  }
  return "unknown";
}

std::string ending_text(How how, int code) {
  switch (how) {
    case How::exited: return "exit " + std::to_string(code);
    case How::signalled: return "signal " + std::to_string(code);
    case How::not_started: return strerror(code);
    default: return to_string(how);
  }
}

Result<std::vector<JobLine>> Store::list(const Filter& filter) {
  const bool of_array = filter.array > 0;
  const bool newest = !of_array && filter.newest > 0;
  const bool everything = !of_array && !newest && !filter.states;
  int64_t mask = filter.states ? 0 : -1;
  if (filter.states)
    for (const State state : *filter.states) mask |= int64_t{1} << static_cast<int>(state);
  // Each kind of query has its own statement, so that SQLite plans each of them well.
  const char* sql = IK_LINE_COLUMNS "WHERE (?1 >> state) & 1 ORDER BY id";
  if (everything) sql = IK_LINE_COLUMNS "ORDER BY id";
  if (newest) sql = IK_LINE_COLUMNS "WHERE (?1 >> state) & 1 ORDER BY id DESC LIMIT ?2";
  if (of_array) sql = IK_LINE_COLUMNS "WHERE (?1 >> state) & 1 AND array=?2 AND array>0 ORDER BY id";
  Query query(*database_, sql);
  if (!everything) query.with(mask);
  if (of_array) query.with(filter.array);
  if (newest) query.with(filter.newest);
  Result<std::vector<JobLine>> lines = read_lines(query);
  if (!lines.ok()) return lines;
  if (newest) std::reverse(lines.value().begin(), lines.value().end());
  return lines;
}

Result<std::vector<JobLine>> Store::ended_last(int64_t count) {
  Query query(*database_,
              IK_LINE_COLUMNS "INDEXED BY jobs_ended WHERE state>1 ORDER BY ended DESC, id DESC LIMIT ?");
  query.with(count);
  Result<std::vector<JobLine>> lines = read_lines(query);
  if (!lines.ok()) return lines;
  std::ranges::sort(lines.value(), {}, &JobLine::id);
  return lines;
}

Result<JobLine> Store::line(JobId id) {
  Query query(*database_, IK_LINE_COLUMNS "WHERE id=?");
  if (!query.with(id).step()) return query.status().ok() ? no_job(id) : query.status();
  JobLine line;
  read_line(query, line);
  return line;
}

// The last run of pruned jobs that begins at or before the id.
#define IK_ENDING "SELECT last, state, array FROM endings WHERE first<=? ORDER BY first DESC LIMIT 1"

Status Store::no_job(JobId id) {
  const std::string none = "there is no job " + std::to_string(id);
  Query query(*database_, IK_ENDING);
  if (query.with(id).step() && query.integer(0) >= id)
    return Status(Code::invalid_argument,
                  none + " any more: it was " + to_string(state_of(query.integer(1))) + ", and pruned");
  return query.status().ok() ? Status(Code::invalid_argument, none) : query.status();
}

Result<JobLine> Store::known(JobId id) {
  Result<JobLine> found = line(id);
  if (found.ok() || found.status().code() != Code::invalid_argument) return found;
  Query query(*database_, IK_ENDING);
  if (!query.with(id).step() || query.integer(0) < id) return query.status().ok() ? found : query.status();
  JobLine ending;
  ending.id = id;
  ending.state = state_of(query.integer(1));
  ending.array = query.integer(2);
  return ending;
}

Result<std::vector<JobId>> Store::members(JobId array) {
  std::vector<JobId> ids;
  Query jobs(*database_, "SELECT id FROM jobs WHERE array=? AND array>0 ORDER BY id");
  jobs.with(array);
  while (jobs.step()) ids.push_back(jobs.integer(0));
  IK_RETURN_IF_ERROR(jobs.status());
  if (!ids.empty()) return ids;
  // An array's ids are consecutive and start at the array's own id.
  Query pruned(*database_, "SELECT first, last, array FROM endings WHERE first>=? ORDER BY first");
  pruned.with(array);
  while (pruned.step() && pruned.integer(2) == array)
    for (JobId id = pruned.integer(0); id <= pruned.integer(1); ++id) ids.push_back(id);
  IK_RETURN_IF_ERROR(pruned.status());
  return ids;
}

Result<Job> Store::get(JobId id) {
  Job job;
  const Result<JobLine> found = line(id);
  if (!found.ok()) return found.status();
  static_cast<JobLine&>(job) = found.value();
  Query more(
      *database_,
      "SELECT slots, retries, commands.directory, commands.words, environments.bytes, details.variables, "
      "by_mode, exclusive, time_limit_ms, notify, reason, environments.limits, grace_ms, linger FROM jobs "
      "JOIN "
      "commands ON commands.id=command "
      "JOIN environments ON environments.id=environment JOIN details ON details.job=jobs.id "
      "WHERE jobs.id=?");
  if (!more.with(id).step())
    return more.status().ok() ? Status(Code::io_error, "job " + std::to_string(id) +
                                                           " is known in part only: "
                                                           "the queue's database is damaged")
                              : more.status();
  job.cpu_slots = count_of(more.integer(0));
  job.retries_left = count_of(more.integer(1));
  job.directory = more.text(2);
  job.command = split_words(more.text(3));
  job.environment = split_words(more.text(4));
  for (const std::string& variable : split_words(more.text(5))) {
    const size_t equals = std::min(variable.find('='), variable.size());
    set_variable(job.environment, variable.substr(0, equals),
                 std::string_view(variable).substr(std::min(equals + 1, variable.size())));
  }
  job.by = lease::to_string(by_of(more.integer(6)));
  if (more.integer(7) >= 0) job.exclusive = more.integer(7) != 0;
  if (more.integer(8) > 0) job.time_limit = std::chrono::milliseconds(std::min(more.integer(8), kMostMs));
  job.notify = more.text(9);
  job.reason = more.text(10);
  job.limits = more.text(11);
  job.grace = std::chrono::milliseconds(std::clamp<int64_t>(more.integer(12), 0, kMostMs));
  job.linger = more.integer(13) != 0;

  Query needs(*database_, "SELECT needs, any_end FROM needs WHERE job=? ORDER BY needs");
  needs.with(id);
  while (needs.step()) job.after.push_back({needs.integer(0), needs.integer(1) != 0});
  IK_RETURN_IF_ERROR(needs.status());
  Query attempts(*database_,
                 "SELECT number, started, ended, gpus, how, code, peak_memory, peak_host FROM attempts "
                 "WHERE job=? ORDER BY number");
  attempts.with(id);
  while (attempts.step()) {
    Attempt& attempt = job.attempts.emplace_back();
    attempt.number = count_of(attempts.integer(0));
    attempt.started_ns = time_of(attempts.integer(1));
    attempt.ended_ns = time_of(attempts.integer(2));
    attempt.gpus = attempts.text(3);
    attempt.how = how_of(attempts.integer(4));
    attempt.code = number_of(attempts.integer(5));
    attempt.peak_memory = bytes_of(attempts.integer(6));
    attempt.peak_host = bytes_of(attempts.integer(7));
  }
  IK_RETURN_IF_ERROR(attempts.status());
  return job;
}

Result<std::vector<Ready>> Store::ready(int limit) {
  Query query(*database_,
              "SELECT id, slots FROM jobs INDEXED BY jobs_ready_cpu WHERE state=0 AND held=0 AND "
              "unmet=0 AND gpus=0 ORDER BY priority DESC, id LIMIT ?");
  query.with(int64_t{limit});
  std::vector<Ready> list;
  while (query.step()) list.push_back({query.integer(0), count_of(query.integer(1))});
  IK_RETURN_IF_ERROR(query.status());
  return list;
}

#define IK_HEAD \
  "SELECT shape, priority, id FROM jobs INDEXED BY jobs_ready_gpus WHERE state=0 AND held=0 AND unmet=0 " \
  "AND gpus>0 AND "

Result<std::vector<Head>> Store::heads(int limit) {
  std::vector<Head> list;
  // Jumps from one shape to the next, however many jobs have each.
  for (int64_t from = INT64_MIN; static_cast<int>(list.size()) < kMostShapes;) {
    Query query(*database_, IK_HEAD "shape>=? ORDER BY shape, priority DESC, id LIMIT 1");
    if (!query.with(from).step()) {
      IK_RETURN_IF_ERROR(query.status());
      break;
    }
    list.push_back({query.integer(0), number_of(query.integer(1)), query.integer(2)});
    if (list.back().shape == INT64_MAX) break;
    from = list.back().shape + 1;
  }
  std::sort(list.begin(), list.end());
  if (list.size() > static_cast<size_t>(limit)) list.resize(static_cast<size_t>(limit));
  return list;
}

Result<std::optional<Head>> Store::head(int64_t shape) {
  Query query(*database_, IK_HEAD "shape=? ORDER BY priority DESC, id LIMIT 1");
  std::optional<Head> found;
  if (query.with(shape).step()) found = {query.integer(0), number_of(query.integer(1)), query.integer(2)};
  IK_RETURN_IF_ERROR(query.status());
  return found;
}

Result<std::vector<Running>> Store::running() {
  Query query(*database_,
              "SELECT id, attempt, cancel, held, jobs.gpus, slots, coalesce(boot, x''), jobs.started FROM "
              "jobs LEFT JOIN "
              "attempts ON attempts.job=jobs.id AND number=attempt WHERE state=1 ORDER BY id");
  std::vector<Running> list;
  while (query.step()) {
    Running& job = list.emplace_back();
    job.id = query.integer(0);
    job.attempt = count_of(query.integer(1));
    job.cancel = query.integer(2) != 0;
    job.held = query.integer(3) != 0;
    job.gpus = count_of(query.integer(4));
    job.cpu_slots = count_of(query.integer(5));
    job.boot_id = query.text(6);
    job.started_ns = time_of(query.integer(7));
  }
  IK_RETURN_IF_ERROR(query.status());
  return list;
}

Result<int64_t> Store::setting(const std::string& name, int64_t otherwise) {
  Query query(*database_, "SELECT value FROM settings WHERE name=?");
  const int64_t value = query.with_blob(name).step() ? query.integer(0) : otherwise;
  IK_RETURN_IF_ERROR(query.status());
  return value;
}

Result<bool> Store::paused() {
  const Result<int64_t> value = setting(kPausedSetting, 0);
  if (!value.ok()) return value.status();
  return value.value() != 0;
}

Result<Measured> Store::measured_of(const std::string& directory, const std::vector<std::string>& command) {
  const std::string words = join_words(command);
  Query query(*database_,
              "SELECT runs, peak_memory, peak_host FROM commands WHERE hash=? AND words=? AND directory=?");
  query.with(static_cast<int64_t>(fnv1a(words))).with_blob(words).with_blob(directory);
  Measured measured;
  if (query.step())
    measured = {time_of(query.integer(0)), bytes_of(query.integer(1)), bytes_of(query.integer(2))};
  IK_RETURN_IF_ERROR(query.status());
  return measured;
}

int64_t Store::data_version() {
  Query query(*database_, "PRAGMA data_version");
  return query.step() ? query.integer(0) : -1;
}

}  // namespace innkeeper::queue
