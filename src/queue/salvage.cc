#include "queue/salvage.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/lines.h"
#include "queue/database.h"
#include "queue/job.h"
#include "queue/life.h"
#include "queue/schema.h"

namespace innkeeper::queue {
namespace {

// A prepared statement that may fail; a failure here means that a row is lost.
class Statement {
 public:
  Statement(sqlite3* database, const std::string& sql) {
    sqlite3_prepare_v2(database, sql.c_str(), -1, &handle_, nullptr);
  }
  ~Statement() { sqlite3_finalize(handle_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // Returns SQLITE_ROW, SQLITE_DONE, or the error of a row that cannot be read.
  int step() { return handle_ == nullptr ? SQLITE_CORRUPT : sqlite3_step(handle_); }
  void reset() {
    if (handle_ != nullptr) sqlite3_reset(handle_);
  }
  void bind(int at, int64_t value) {
    if (handle_ != nullptr) sqlite3_bind_int64(handle_, at, value);
  }
  int64_t integer(int column) const { return sqlite3_column_int64(handle_, column); }
  std::string text(int column) const {
    const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(handle_, column));
    return bytes == nullptr ? "" : bytes;
  }
  int columns() const { return handle_ == nullptr ? 0 : sqlite3_column_count(handle_); }
  void take_row(const Statement& from) {
    if (handle_ == nullptr) return;
    for (int at = 0; at < from.columns(); ++at)
      sqlite3_bind_value(handle_, at + 1, sqlite3_column_value(from.handle_, at));
  }

 private:
  sqlite3_stmt* handle_ = nullptr;
};

// Notes the last attempt of each job that has left a file.
void add_attempts(const std::string& directory, std::map<JobId, int>& seen) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename();
    std::string_view rest = name;
    JobId id = 0;
    int attempt = 0;
    if (read_number(cut(rest, '.'), id) && read_number(cut(rest, '.'), attempt) && id > 0)
      seen[id] = std::max(seen[id], attempt);
  }
}

class Salvage {
 public:
  Salvage(Database* from, Database& to, const QueueDirectory& directory)
      : from_(from), to_(to), directory_(directory) {}

  Status run() {
    Transaction transaction(to_);
    IK_RETURN_IF_ERROR(transaction.status());
    if (from_ != nullptr) copy_what_can_be_read();
    IK_RETURN_IF_ERROR(know_lost_jobs());
    IK_RETURN_IF_ERROR(fill_gaps());
    return transaction.commit();
  }
  int64_t lost() const { return lost_; }

 private:
  void copy_what_can_be_read() {
    by_number("jobs", "id");
    by_number("commands", "id");
    by_number("environments", "id");
    by_number("details", "job");
    by_number("endings", "first");
    of_each_job("needs");
    of_each_job("attempts");
    all_of("settings");
  }

  // Lists a table's columns by name: an upgraded table has them in another order.
  std::vector<std::string> columns(const std::string& table) const {
    std::vector<std::string> names;
    Statement query(to_.raw(), "SELECT name FROM pragma_table_info('" + table + "')");
    while (query.step() == SQLITE_ROW) names.push_back(query.text(0));
    return names;
  }
  std::string select(const std::string& table) const {
    std::string text;
    for (const std::string& name : columns(table)) text += (text.empty() ? "SELECT " : ", ") + name;
    return text + " FROM " + table;
  }
  std::string insert(const std::string& table) const {
    std::string names, marks;
    for (const std::string& name : columns(table)) {
      names += (names.empty() ? "" : ", ") + name;
      marks += marks.empty() ? "?" : ", ?";
    }
    return "INSERT OR IGNORE INTO " + table + "(" + names + ") VALUES(" + marks + ")";
  }

  // Copies rows by their number. Each row is read by a search of its own, so that an unreadable page hides
  // only its own rows. After a failed search, skip() looks for the next number from which a search succeeds.
  void by_number(const std::string& table, const std::string& number) {
    Statement next(from_->raw(), select(table) + " WHERE " + number + ">? ORDER BY " + number + " LIMIT 1");
    Statement put(to_.raw(), insert(table));
    const auto search = [&](int64_t beyond) {
      next.reset();
      next.bind(1, beyond);
      return next.step();
    };
    int64_t beyond = -1;
    for (;;) {
      const int code = search(beyond);
      if (code == SQLITE_DONE) return;
      if (code != SQLITE_ROW) {
        const std::optional<int64_t> readable = skip(search, beyond);
        if (!readable) return;
        beyond = *readable;
        continue;
      }
      put.reset();
      put.take_row(next);
      put.step();
      // A number that does not grow is damage that SQLite did not report.
      beyond = std::max(beyond + 1, next.integer(0));
    }
  }

  // Returns approximately the least number beyond which a search succeeds: steps that
  // double, then halves of the last.
  template <class Search>
  static std::optional<int64_t> skip(const Search& search, int64_t from) {
    constexpr int64_t kFarthest = int64_t{1} << 40;
    int64_t bad = from, step = 1;
    while (search(bad + step) != SQLITE_ROW) {
      bad += step;
      step *= 2;
      if (step > kFarthest) return std::nullopt;
    }
    int64_t good = bad + step;
    while (good - bad > 1) {
      const int64_t middle = bad + (good - bad) / 2;
      (search(middle) == SQLITE_ROW ? good : bad) = middle;
    }
    return good;
  }

  void of_each_job(const std::string& table) {
    Statement jobs(to_.raw(), "SELECT id FROM jobs");
    Statement rows(from_->raw(), select(table) + " WHERE job=?");
    Statement put(to_.raw(), insert(table));
    while (jobs.step() == SQLITE_ROW) {
      rows.reset();
      rows.bind(1, jobs.integer(0));
      copy(rows, put);
    }
  }

  void all_of(const std::string& table) {
    Statement rows(from_->raw(), select(table));
    Statement put(to_.raw(), insert(table));
    copy(rows, put);
  }

  static void copy(Statement& rows, Statement& put) {
    while (rows.step() == SQLITE_ROW) {
      put.reset();
      put.take_row(rows);
      put.step();
    }
  }

  int64_t one(const std::string& sql) const {
    Statement query(to_.raw(), sql);
    return query.step() == SQLITE_ROW ? query.integer(0) : 0;
  }

  // Recreates a row for each lost job that has left output or runs; only its number is known.
  Status know_lost_jobs() {
    std::map<JobId, int> seen;
    for (const std::string& name : {directory_.output_directory(), directory_.life_directory()})
      add_attempts(name, seen);
    Statement pruned(to_.raw(), "SELECT 1 FROM endings WHERE first<=? AND last>=?");
    Statement put(
        to_.raw(),
        "INSERT OR IGNORE INTO jobs(id, array, state, how, priority, gpus, memory, attempt, unmet, added, "
        "started, ended, title, slots, retries, command, environment, shape) "
        "VALUES(?, 0, ?, ?, 0, 0, 0, ?, 0, ?, ?, ?, CAST('(lost with a damaged database)' AS BLOB), 1, 0, "
        "0, 0, 0)");
    Statement attempt_row(to_.raw(),
                          "INSERT OR IGNORE INTO attempts(job, number, started, ended, gpus, how, boot) "
                          "VALUES(?, ?, ?, ?, x'', ?, x'')");
    for (const auto& [id, attempt] : seen) {
      pruned.reset();
      pruned.bind(1, id);
      pruned.bind(2, id);
      if (pruned.step() == SQLITE_ROW) continue;
      const bool runs = look(directory_.life(id, attempt)).present;
      struct stat about {};
      const bool has_output = stat(directory_.output(id, attempt).c_str(), &about) == 0;
      const int64_t then = has_output ? int64_t{about.st_mtim.tv_sec} * 1'000'000'000 : wall_clock_ns();
      put.reset();
      int at = 0;
      for (const int64_t value :
           {id, static_cast<int64_t>(runs ? State::running : State::interrupted),
            static_cast<int64_t>(How::unknown), int64_t{attempt}, then, then, runs ? int64_t{0} : then})
        put.bind(++at, value);
      put.step();
      attempt_row.reset();
      at = 0;
      for (const int64_t value :
           {id, int64_t{attempt}, then, runs ? int64_t{0} : then, static_cast<int64_t>(How::unknown)})
        attempt_row.bind(++at, value);
      attempt_row.step();
    }
    // Numbers are never used again; the lost ones are counted and reported.
    const int64_t last = std::max(last_number(), one("SELECT max(id) FROM jobs"));
    const int64_t pruned_count = one("SELECT sum(last-first+1) FROM endings");
    lost_ = std::max<int64_t>(0, last - pruned_count - one("SELECT count(*) FROM jobs"));
    // Added to the number that was lost before.
    Query note(
        to_,
        "INSERT INTO settings(name, value) VALUES(CAST('lost' AS BLOB), ?) ON CONFLICT(name) DO UPDATE SET "
        "value=value+excluded.value");
    IK_RETURN_IF_ERROR(note.with(lost_).run());
    IK_RETURN_IF_ERROR(Query(to_, "DELETE FROM sqlite_sequence WHERE name='jobs'").run());
    return Query(to_, "INSERT INTO sqlite_sequence(name, seq) VALUES('jobs', ?)").with(last).run();
  }

  // Returns the last number that was given to a job.
  int64_t last_number() const {
    if (from_ == nullptr) return 0;
    Statement sequence(from_->raw(), "SELECT seq FROM sqlite_sequence WHERE name='jobs'");
    return sequence.step() == SQLITE_ROW ? sequence.integer(0) : 0;
  }

  // Gives each job a command, an environment and details again. A waiting job that has lost them has failed.
  Status fill_gaps() {
    static constexpr const char* kSteps[] = {
        "INSERT OR IGNORE INTO commands(id, hash, directory, words) "
        "SELECT DISTINCT command, 0, CAST('/' AS BLOB), CAST('(lost)' AS BLOB) FROM jobs "
        "WHERE command NOT IN (SELECT id FROM commands)",
        "INSERT OR IGNORE INTO environments(id, hash, bytes, limits) "
        "SELECT DISTINCT environment, 0, x'', x'' FROM jobs "
        "WHERE environment NOT IN (SELECT id FROM environments)",
        "CREATE TEMP TABLE gaps AS SELECT id FROM jobs WHERE state=0 AND ("
        "id NOT IN (SELECT job FROM details) "
        "OR command IN (SELECT id FROM commands WHERE hash=0 AND words=CAST('(lost)' AS BLOB)) "
        "OR environment IN (SELECT id FROM environments WHERE hash=0 AND bytes=x'') "
        "OR unmet>(SELECT count(*) FROM needs WHERE job=jobs.id))",
        "INSERT OR IGNORE INTO details(job, variables, by_mode, exclusive, time_limit_ms, grace_ms, linger, "
        "notify) SELECT id, x'', 0, -1, 0, 30000, 0, x'' FROM jobs WHERE id NOT IN (SELECT job FROM details)",
        "UPDATE details SET reason=CAST('what it runs or waits for was lost with a damaged part of the "
        "queue''s database' AS BLOB) WHERE job IN (SELECT id FROM gaps)",
        "UPDATE jobs SET state=3, how=4, unmet=0, ended=added WHERE id IN (SELECT id FROM gaps)",
        "DROP TABLE gaps",
        // A job that needs a vanished job waits no longer than for one that was lost.
        "UPDATE jobs SET unmet=(SELECT count(*) FROM needs JOIN jobs AS other ON other.id=needs.needs "
        "WHERE needs.job=jobs.id AND other.state<2) WHERE state=0",
    };
    for (const char* step : kSteps) IK_RETURN_IF_ERROR(to_.execute(step));
    return Status::okay();
  }

  Database* from_;
  Database& to_;
  const QueueDirectory& directory_;
  int64_t lost_ = 0;
};

}  // namespace

Result<int64_t> salvage(Database* from, Database& to, const QueueDirectory& directory) {
  Salvage salvage(from, to, directory);
  IK_RETURN_IF_ERROR(salvage.run());
  return salvage.lost();
}

bool has_traces(const QueueDirectory& directory) {
  std::map<JobId, int> seen;
  for (const std::string& name : {directory.output_directory(), directory.life_directory()})
    add_attempts(name, seen);
  return !seen.empty();
}

}  // namespace innkeeper::queue
