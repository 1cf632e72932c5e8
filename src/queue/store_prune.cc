// The part of the store that prunes.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <set>
#include <utility>

#include "base/clock.h"
#include "lease/kill_point.h"
#include "lease/open_file.h"
#include "lease/process.h"
#include "queue/store.h"
#include "queue/values.h"

namespace innkeeper::queue {
namespace {

// Rows to keep that no job refers to: measured commands, for their next run, and runs of pruned jobs that
// ended alike. Each takes a few megabytes.
constexpr int64_t kMeasuredCommands = 20'000;
constexpr int64_t kEndings = 100'000;

struct Member {
  JobId id;
  State state;
  int attempt;
};

// Each attempt costs a file lookup, so a damaged number must not cost hours. (The rows do not help: an
// attempt that never began may have a file and no row.)
int attempts_of(int64_t value) {
  constexpr int kMostAttempts = 1'100'000;  // Retries have a limit of a million.
  return std::min(count_of(value), kMostAttempts);
}

// Returns whether a process still reads or writes the file: a process that the job left behind, `queue log
// -f`, `tail -f`. The kernel grants a write lease on a file only to a process that alone has it open. A file
// system without leases (FUSE) hides this; a process with the file open then keeps its content.
bool is_open_elsewhere(const std::string& path) {
  const lease::OpenFile file(
      [&] { return open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC); });
  if (!file.valid()) return false;
  // A process that opens the file at this moment waits for us, and the kernel signals that. SIGURG is ignored
  // by default; the usual signal would end this process.
  (void)fcntl(file.fd(), F_SETSIG, SIGURG);
  if (fcntl(file.fd(), F_SETLEASE, F_WRLCK) != 0) return errno == EAGAIN;
  (void)fcntl(file.fd(), F_SETLEASE, F_UNLCK);
  return false;
}

bool any_open(const QueueDirectory& directory, const std::vector<Member>& unit) {
  for (const Member& job : unit)
    for (int attempt = 1; attempt <= job.attempt; ++attempt)
      if (is_open_elsewhere(directory.output(job.id, attempt))) return true;
  return false;
}

}  // namespace

Status Store::forget(JobId id) {
  for (const char* sql : {"DELETE FROM details WHERE job=?", "DELETE FROM needs WHERE job=?",
                          "DELETE FROM attempts WHERE job=?", "DELETE FROM jobs WHERE id=?"}) {
    Query query(*database_, sql);
    IK_RETURN_IF_ERROR(query.with(id).run());
  }
  return Status::okay();
}

// Records a pruned job's final state. Consecutive jobs that ended alike share a row.
Status Store::remember(JobId id, JobId array, State state) {
  const auto like = [&](const char* sql, int64_t other, int64_t& found) -> Status {
    Query query(*database_, sql);
    query.with(other).with(static_cast<int64_t>(state)).with(array);
    found = query.step() ? query.integer(0) : 0;
    return query.status();
  };
  int64_t first = 0, last = 0;
  IK_RETURN_IF_ERROR(like(
      "SELECT first FROM (SELECT * FROM endings WHERE first<=?1 ORDER BY first DESC LIMIT 1) WHERE last=?1 "
      "AND state=?2 AND array=?3",
      id - 1, first));
  IK_RETURN_IF_ERROR(like("SELECT last FROM endings WHERE first=? AND state=? AND array=?", id + 1, last));
  if (last != 0) {
    Query joined(*database_, "DELETE FROM endings WHERE first=?");
    IK_RETURN_IF_ERROR(joined.with(id + 1).run());
  }
  Query row(*database_, "INSERT OR REPLACE INTO endings(first, last, state, array) VALUES(?, ?, ?, ?)");
  row.with(first != 0 ? first : id).with(last != 0 ? last : id).with(static_cast<int64_t>(state));
  return row.with(array).run();
}

Result<Pruned> Store::prune(const Keep& keep, const QueueDirectory& directory, int64_t enough,
                            const std::optional<Care>& care) {
  // Selects jobs that ended before this time, or at this time with at most this id.
  using Cut = std::pair<int64_t, int64_t>;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr Cut kNothing{std::numeric_limits<int64_t>::min(), 0};
  Transaction transaction(*database_);
  IK_RETURN_IF_ERROR(transaction.status());
  const auto all_but = [&](int64_t count, Cut& cut) -> Status {
    Query next(*database_,
               "SELECT ended, id FROM jobs INDEXED BY jobs_ended WHERE state>1 "
               "ORDER BY ended DESC, id DESC LIMIT 1 OFFSET ?");
    cut = next.with(count).step() ? Cut{next.integer(0), next.integer(1)} : kNothing;
    return next.status();
  };
  Cut old = kNothing, beyond = kNothing;  // Bounds by age and by number.
  int64_t young = kMost;                  // Jobs with this id or a later one are not old.
  if (keep.age) old = {(care ? care->now_ns : wall_clock_ns()) - keep.age->count(), kMost};
  if (keep.age && care) {
    Cut spare;
    IK_RETURN_IF_ERROR(all_but(care->at_least, spare));
    Query first(*database_, "SELECT id FROM jobs WHERE added>? ORDER BY id LIMIT 1");
    if (first.with(old.first).step()) young = first.integer(0);
    IK_RETURN_IF_ERROR(first.status());
    old = std::min(old, spare);
  }
  if (keep.jobs) IK_RETURN_IF_ERROR(all_but(*keep.jobs, beyond));
  Pruned pruned;
  const Cut cut = std::max(old, beyond);
  if (cut == kNothing) return pruned;

  std::vector<std::pair<JobId, std::vector<Member>>> units;
  {
    std::set<JobId> arrays;  // Arrays that were examined already.
    Query found(*database_,
                "SELECT id, array, state, attempt FROM jobs INDEXED BY jobs_ended WHERE state>1 "
                "AND (ended, id) <= (?1, ?2) AND ((ended, id) <= (?3, ?4) OR id < ?5) AND array NOT IN "
                "(SELECT array FROM jobs WHERE array>0 AND (state<=1 OR (ended, id) > (?1, ?2) "
                "OR ((ended, id) > (?3, ?4) AND id >= ?5))) "
                "ORDER BY ended, id");
    found.with(cut.first).with(cut.second).with(beyond.first).with(beyond.second);
    found.with(old < cut ? 0 : young);
    while (pruned.jobs < enough && found.step()) {
      const JobId array = found.integer(1);
      std::vector<Member> unit;
      if (array == 0) {
        unit.push_back({found.integer(0), state_of(found.integer(2)), attempts_of(found.integer(3))});
      } else if (arrays.insert(array).second) {
        Query tasks(*database_, "SELECT id, state, attempt FROM jobs WHERE array=? AND array>0 ORDER BY id");
        tasks.with(array);
        while (tasks.step())
          unit.push_back({tasks.integer(0), state_of(tasks.integer(1)), attempts_of(tasks.integer(2))});
        IK_RETURN_IF_ERROR(tasks.status());
      }
      if (unit.empty() || any_open(directory, unit)) continue;
      pruned.jobs += static_cast<int64_t>(unit.size());
      units.emplace_back(array, std::move(unit));
    }
    IK_RETURN_IF_ERROR(found.status());
  }
  for (const auto& [array, unit] : units)
    for (const Member& job : unit) {
      IK_RETURN_IF_ERROR(forget(job.id));
      IK_RETURN_IF_ERROR(remember(job.id, array, job.state));
    }
  // The files are removed before the commit. A kill between the two leaves a job without output, which the
  // next pruning deletes, but never an output without a job.
  for (const auto& [array, unit] : units)
    for (const Member& job : unit)
      for (int attempt = 1; attempt <= job.attempt; ++attempt) {
        const std::string path = directory.output(job.id, attempt);
        struct stat about {};
        if (lstat(path.c_str(), &about) == 0) pruned.output += Bytes(about.st_size);
        unlink(path.c_str());
      }
  lease::step("outputs removed");
  IK_RETURN_IF_ERROR(transaction.commit());
  return pruned;
}

Status Store::tidy() {
  {
    Transaction transaction(*database_);
    IK_RETURN_IF_ERROR(transaction.status());
    IK_RETURN_IF_ERROR(
        Query(*database_, "DELETE FROM environments WHERE id NOT IN (SELECT environment FROM jobs)").run());
    Query commands(*database_,
                   "DELETE FROM commands WHERE id NOT IN (SELECT command FROM jobs) AND id NOT IN "
                   "(SELECT id FROM commands WHERE peak_memory>0 ORDER BY id DESC LIMIT ?)");
    IK_RETURN_IF_ERROR(commands.with(kMeasuredCommands).run());
    Query endings(*database_,
                  "DELETE FROM endings WHERE first <= "
                  "(SELECT first FROM endings ORDER BY first DESC LIMIT 1 OFFSET ?)");
    IK_RETURN_IF_ERROR(endings.with(kEndings).run());
    IK_RETURN_IF_ERROR(transaction.commit());
  }
  return database_->execute("PRAGMA incremental_vacuum");
}

}  // namespace innkeeper::queue
