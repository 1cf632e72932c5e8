// The queue's database: jobs, their needs and their attempts. Every change is one transaction, and each
// leaves a state from which any runner can go on (docs/design/queue.md).
//
// The store knows no processes. It returns the last recorded state of a running job;
// life.h tells whether the job lives.
//
// Thread safety: one thread uses it at a time. A child of fork() must not use it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "queue/database.h"
#include "queue/job.h"
#include "queue/queue_directory.h"

namespace innkeeper::queue {

// Setting; any value but 0: no job is claimed.
inline constexpr const char* kPausedSetting = "paused";

// Selection of jobs for a list, which is sorted by id.
struct Filter {
  std::optional<std::vector<State>> states;  // States to list; none: all.
  JobId array = 0;                           // Array whose jobs are listed; 0: all jobs.
  int64_t newest = 0;                        // Maximum number of jobs, the last added; 0: all.
};

// Record of an attempt's end.
struct Ending {
  How how = How::unknown;
  int code = 0;
  int64_t ended_ns = 0;
  Bytes peak_host;
};

// A running job, as the runner needs it.
struct Running {
  JobId id = 0;
  int attempt = 0;
  bool cancel = false;  // True: the user has cancelled it.
  bool held = false;
  int gpus = 0;
  int cpu_slots = 0;
  std::string boot_id;  // Boot in which the attempt was begun.
  int64_t started_ns = 0;
};

// Data that decide whether a queued job can start; read often.
struct Ready {
  JobId id = 0;
  int cpu_slots = 0;
};

// First ready job of one shape; requests of a shape are granted or refused alike. The least head is the best.
struct Head {
  int64_t shape = 0;
  int priority = 0;
  JobId id = 0;
  bool operator<(const Head& other) const {
    return priority != other.priority ? priority > other.priority : id < other.id;
  }
};

// Resources that a command needed in earlier runs.
struct Measured {
  int64_t runs = 0;
  Bytes peak_memory;  // Peak on the fullest GPU; 0: unknown.
  Bytes peak_host;
};

// Bounds on the history. Each bound applies by itself.
struct Keep {
  std::optional<std::chrono::nanoseconds> age;  // Longest time since a job's end; none: unlimited.
  std::optional<int64_t> jobs;                  // Number of last-ended jobs to keep; none: all.
};
// Limits on automatic deletion by the runner. A wrong clock, now or when a job ended, must not delete the
// history. Therefore a job also counts as no older than the jobs that were added before it.
struct Care {
  int64_t now_ns = 0;    // Current time, ns since 1970; see careful_now().
  int64_t at_least = 0;  // Number of last-ended jobs that are never deleted for their age.
};
struct Pruned {
  int64_t jobs = 0;
  Bytes output;  // Size of the deleted output files.
};

class Store {
 public:
  static Result<Store> open(const QueueDirectory& directory, Durable durable);

  // Adds all jobs in one transaction, or none. Requires: `environment` and `directory` are filled in. Ids are
  // consecutive. Fails if the spec makes no sense or needs a job that did not succeed.
  Result<std::vector<JobId>> add(const JobSpec& spec);

  Result<std::vector<JobLine>> list(const Filter& filter);
  Result<std::vector<JobLine>> ended_last(int64_t count);  // Returns at most `count` jobs, by id.
  Result<Job> get(JobId id);  // Fails with invalid_argument if there is no such job.
  Result<JobLine> line(JobId id);
  // As line(), but also accepts a pruned job, of which only id, array and state are known.
  Result<JobLine> known(JobId id);
  // Returns an array's jobs by id, including pruned ones.
  Result<std::vector<JobId>> members(JobId array);

  // The following methods are for the runner.
  Result<std::vector<Ready>> ready(int limit);  // Jobs without GPUs, in the order of their start.
  // Returns the first job of each shape with GPUs, at most `limit`, in the order of their start.
  // head() returns that of one shape.
  Result<std::vector<Head>> heads(int limit);
  Result<std::optional<Head>> head(int64_t shape);
  Result<std::vector<Running>> running();
  // Marks a ready job as running in its next attempt, `attempt`. Returns false if the job is not ready any
  // more, or if the queue was paused since the runner looked.
  Result<bool> claim(JobId id, int attempt, const std::string& gpus, const std::string& boot_id);
  // Records that the attempt is over. Returns the job's new state, or its old one if the attempt was over
  // already. `reason`: additional explanation.
  Result<State> finish(JobId id, int attempt, const Ending& ending, const std::string& reason = "");
  // Undoes a claim whose attempt never began: the job is queued again, or
  // cancelled if the user has cancelled it.
  Status take_back(JobId id, int attempt);
  // Marks a queued job that can never run as failed.
  Status give_up(JobId id, const std::string& reason);
  // Records why the job does not run yet.
  Status explain(JobId id, const std::string& reason);
  Status measured(JobId id, int attempt, Bytes peak_memory);

  // Cancels queued jobs at once, and marks running ones. All are changed in one transaction: otherwise the
  // end of one job could let another one begin meanwhile. Returns the jobs' former states.
  Result<std::vector<State>> cancel(const std::vector<JobId>& ids);
  // Changes all jobs or none, except those that have ended. Returns how many have not.
  Result<int64_t> hold(const std::vector<JobId>& ids, bool held);

  Result<int64_t> setting(const std::string& name, int64_t otherwise);
  Status set(const std::string& name, int64_t value);
  Status set_all(const std::vector<std::pair<std::string, int64_t>>& values);  // Sets all values or none.
  Result<bool> paused();
  Result<Measured> measured_of(const std::string& directory, const std::vector<std::string>& command);

  // Deletes ended jobs and their output, the oldest first: at least `enough` of them (an array goes as a
  // whole), or all that may go. Jobs that wait or run stay. So do an array that has a job that stays, and an
  // output that a process has open. The final state of each pruned job stays known for ever, so that other
  // jobs may still need it. One transaction.
  Result<Pruned> prune(const Keep& keep, const QueueDirectory& directory, int64_t enough,
                       const std::optional<Care>& care = std::nullopt);
  // Drops rows that no job refers to, and returns their disk space. Measurements of commands stay.
  Status tidy();

  // Returns whether the database was found damaged since the last call (mend.h).
  bool take_damage() { return database_->take_damage(); }
  // Returns whether another database has taken its place (mend.h), so that the store must be opened again.
  bool moved() const { return database_->moved(); }

  // Changes whenever another connection has written.
  int64_t data_version();

 private:
  explicit Store(Database database) : database_(std::make_unique<Database>(std::move(database))) {}
  Result<int64_t> intern_environment(const std::string& bytes, const std::string& limits);
  Result<int64_t> intern_command(const std::string& directory, const std::string& words);
  Result<int> unmet(const std::vector<Need>& after);
  Status end(JobId id, State state, const std::string& reason, int64_t ended_ns);
  Status mark(JobId id, State state, const std::string& reason, int64_t ended_ns);
  Status settle(JobId id, bool succeeded);
  Status no_job(JobId id);
  Status forget(JobId id);
  Status remember(JobId id, JobId array, State state);

  std::unique_ptr<Database> database_;
};

// Joins words, each followed by a NUL, as /proc does.
std::string join_words(const std::vector<std::string>& words);
std::vector<std::string> split_words(std::string_view bytes);

}  // namespace innkeeper::queue
