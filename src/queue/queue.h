// A user's queue of jobs on this machine:
//
//   Result<Queue> queue = Queue::open();
//   JobSpec job;
//   job.command = {"python", "train.py", "--lr", "{lr}"};
//   job.gpus = lease::Request{.count = 1, .memory = GiB(8)};
//   job.sweep = {{"lr", {"0.1", "0.01"}}};
//   const std::vector<JobId> ids = queue.value().add(job).value();
//   queue.value().wait(ids);
//
// There is no daemon. Adding a job starts the runner if there is none; the runner ends with the last
// job. Killing the runner harms nothing: jobs go on, and the next caller replaces it. A job that has
// begun is never begun again, unless its `retries` allow it. A job whose end was not recorded is
// `interrupted` (docs/design/queue.md).
//
// Each user has a queue and a runner of their own (queue_directory.h). Users share the GPUs by leases
// (lease/arbiter.h). CPU slots are counted separately for each user.
//
// Jobs that add() has returned survive the death of every process. A power cut may lose the jobs that were
// added in its last moments. The records that a job has begun, and how it ended, survive a power cut as well.
//
// Errors: invalid_argument, the request makes no sense or there is no such job; io_error, the
// directory or the database failed; busy, another process locked the database for very long;
// unavailable, no runner can be started.
//
// Thread safety: one thread uses it at a time; any number of processes may. A
// child of fork() must not use it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "queue/job.h"
#include "queue/program.h"
#include "queue/store.h"

namespace innkeeper::queue {

inline constexpr int64_t kMostCpuSlots = 1'000'000;

class Queue {
 public:
  // Opens this user's queue (queue_directory.h), or the one in `directory`.
  static Result<Queue> open(Program program = {});
  static Result<Queue> open(const std::string& directory, Program program);

  // Adds all jobs of an array or sweep, or none. Fields that the spec leaves open (directory,
  // environment) take the caller's present values. The jobs are in the queue even if no runner can be
  // started; ensure_runner() reports that.
  Result<std::vector<JobId>> add(JobSpec spec);

  // list(), ended_last() and show() return the present state. If there is no runner but work for one, they
  // start it, and it first records the jobs that ended unseen.
  //
  // Sorted by id. Listing 100,000 jobs takes less than 100 ms.
  Result<std::vector<JobLine>> list(const Filter& filter = {});
  // Returns the `count` jobs that ended last, sorted by id.
  Result<std::vector<JobLine>> ended_last(int64_t count);
  Result<Job> show(JobId id);
  // Returns the path of an attempt's output; 0: the last attempt. The file may not exist yet.
  Result<std::string> log_path(JobId id, int attempt = 0);

  // Waits until all jobs have ended for good. Returns their lines in the order of `ids`. Returns busy once
  // `limit` has passed or `cancelled` returns true (called a few times a second; may be null). Blocks.
  Result<std::vector<JobLine>> wait(const std::vector<JobId>& ids,
                                    std::optional<std::chrono::milliseconds> limit = std::nullopt,
                                    const std::function<bool()>& cancelled = nullptr);

  // Queued jobs never start. Running ones are ended (SIGTERM, then SIGKILL). Jobs that need their success are
  // cancelled. Returns before the running ones have ended. Ended jobs stay as they are.
  Status cancel(const std::vector<JobId>& ids);

  // Until resume(), a queued job does not start, and a running job is stopped but keeps its GPUs.
  Status pause(const std::vector<JobId>& ids);
  Status resume(const std::vector<JobId>& ids);
  // The runner starts no job until resume_all(). Running jobs go on.
  Status pause_all();
  Status resume_all();
  Result<bool> paused();
  // Calls pause_all() and waits until no job runs, for example before a shutdown. Blocks;
  // `limit` and `cancelled` as in wait().
  Status drain(std::optional<std::chrono::milliseconds> limit = std::nullopt,
               const std::function<bool()>& cancelled = nullptr);

  // Parses job numbers. "12" is job 12, or its whole array if job 12 is the array's first; "12.0" is the
  // first job of array 12 and "12.1" the second; "12-14" is a range.
  Result<std::vector<JobId>> resolve(std::string_view text);

  // Returns the memory that such a job needed before on its fullest GPU, plus a margin. Earlier runs of the
  // same command in the same directory count. For several jobs it is their maximum. None: unknown.
  Result<std::optional<Bytes>> proposed_memory(const JobSpec& spec);
  Result<Measured> measured(const std::string& directory, const std::vector<std::string>& command);

  // Total number of slots for jobs without GPUs; the number of CPUs unless it is set.
  Result<int64_t> cpu_slots();
  Status set_cpu_slots(int64_t slots);

  // Deletes jobs that have ended, with their output: those older than keep.age, and all but the last
  // keep.jobs. Jobs that wait or run stay. So do an array that has a job that stays, and an output that a
  // process has open. The pruned jobs' numbers and final states stay known: `after` and wait() accept them.
  Result<Pruned> prune(const Keep& keep);
  // The bounds by which the runner prunes whenever it ends: 90 days and 20,000 jobs unless they are set.
  Result<Keep> keep();
  Status set_keep(const Keep& keep);

  // Returns a message about a mended database while its damaged file is kept; else empty.
  Result<std::string> said_of_damage();

  Status ensure_runner() const { return queue::ensure_runner(*directory_, program_); }
  bool runner_alive() const { return queue::runner_alive(*directory_); }
  const QueueDirectory& directory() const { return *directory_; }

 private:
  Queue(std::shared_ptr<const QueueDirectory> directory, Program program, Store store)
      : directory_(std::move(directory)), program_(std::move(program)), store_(std::move(store)) {}
  static Result<Store> open_store(const QueueDirectory& directory);
  // Opens the store again if another database has taken its place.
  Status follow_if_moved();
  // Runs `ask` on the store, and once more if the database was damaged and has been mended (mend.h).
  template <class Ask>
  auto asking(const Ask& ask) -> decltype(ask());
  Status set(const char* setting, int64_t value);
  Status hold(const std::vector<JobId>& ids, bool held);
  Status catch_up();
  // Checks `over` after each change until it returns true. Ensures a runner while there is work.
  Status wait_until(std::optional<std::chrono::milliseconds> limit, const std::function<bool()>& cancelled,
                    const std::function<Result<bool>()>& over);
  void catch_up_or_say();
  void judge(JobLine& job, const struct Life& life) const;
  // After a change: wakes the runner, or starts one soon.
  void changed() const;

  std::shared_ptr<const QueueDirectory> directory_;
  Program program_;
  Store store_;
};

}  // namespace innkeeper::queue
