// A user's queue of jobs on this machine:
//
//   Result<Queue> queue = Queue::open();
//   JobSpec job;
//   job.command = {"python", "train.py", "--lr", "{lr}"};
//   job.cards = lease::Request{.count = 1, .memory = GiB(8)};
//   job.sweep = {{"lr", {"0.1", "0.01"}}};
//   const std::vector<JobId> ids = queue.value().add(job).value();
//   queue.value().wait(ids);
//
// There is no daemon. Adding a job starts the runner if there is none; it ends with the last job. Killing it
// harms nothing: jobs go on, and whoever calls next replaces it. A job that has begun is never begun again,
// unless its `retries` say so; one whose end nobody saw is `interrupted` (docs/design/queue.md).
//
// Each user has a queue and a runner of their own (folder.h). Users share the cards by leases
// (lease/arbiter.h), CPU slots are counted for each user apart.
//
// What add() has returned survives the death of every process; a power cut may take what was added in its
// last moments. That a job has begun, and how it ended, survive a power cut as well.
//
// Errors: invalid_argument, the request makes no sense, or there is no such job; io_error, the folder or the
// database; busy, the database is locked by somebody for very long; unavailable, no runner can be started.
//
// One thread at a time; any number of processes. Not to be used in a child of fork().
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
  // This user's (folder.h), or the one in `folder`.
  static Result<Queue> open(Program program = {});
  static Result<Queue> open(const std::string& folder, Program program);

  // All jobs of an array or sweep, or none. What the spec leaves open (folder, environment) is the caller's
  // as it is now. The jobs are in the queue even where no runner can be started: ensure_runner() says so.
  Result<std::vector<JobId>> add(JobSpec spec);

  // What these three say is so: where there is no runner, and something for it to do, they start one, which
  // notes first what ended unseen.
  //
  // By id. 100,000 jobs take less than 100 ms.
  Result<std::vector<JobLine>> list(const Filter& filter = {});
  // The last so many that ended, by id.
  Result<std::vector<JobLine>> ended_last(int64_t count);
  Result<Job> show(JobId id);
  // Where an attempt's output is, the last one's for 0. The file may not be there yet.
  Result<std::string> log_path(JobId id, int attempt = 0);

  // Until all have ended for good; their lines, in the order of `ids`. On `limit`, or when `cancelled` says
  // so (asked a few times a second, may be null): busy. Blocks.
  Result<std::vector<JobLine>> wait(const std::vector<JobId>& ids,
                                    std::optional<std::chrono::milliseconds> limit = std::nullopt,
                                    const std::function<bool()>& cancelled = nullptr);

  // Queued ones never start, running ones are ended (SIGTERM, then SIGKILL), and what needs their success is
  // cancelled. Does not wait for their end. Ended ones stay as they are.
  Status cancel(const std::vector<JobId>& ids);

  // A queued one does not start, a running one is stopped (and keeps its cards), until resume().
  Status pause(const std::vector<JobId>& ids);
  Status resume(const std::vector<JobId>& ids);
  // Nothing is started until resume_all(). What runs goes on.
  Status pause_all();
  Status resume_all();
  Result<bool> paused();
  // pause_all(), and waits until nothing runs: before a shutdown. Blocks; `limit`, `cancelled` as for wait().
  Status drain(std::optional<std::chrono::milliseconds> limit = std::nullopt,
               const std::function<bool()>& cancelled = nullptr);

  // "12" is job 12, or its whole array if it is the first of one; "12.0" the first of the array 12, "12.1"
  // the second; "12-14" some.
  Result<std::vector<JobId>> resolve(std::string_view text);

  // What such a job needed of its fullest card before, with a margin: the same command in the same folder. Of
  // many jobs the most that one of them needed. None: unknown.
  Result<std::optional<Bytes>> proposed_memory(const JobSpec& spec);
  Result<Measured> measured(const std::string& directory, const std::vector<std::string>& command);

  // How many slots jobs without cards have in all; as many as CPUs unless it is set.
  Result<int64_t> cpu_slots();
  Status set_cpu_slots(int64_t slots);

  // Forgets jobs that ended before, with their output: those older than keep.age, and all but the last
  // keep.jobs. What waits or runs stays, and so does an array of which anything stays, and an output that
  // somebody has open. That and how they were stays known: `after` and wait() take a pruned job.
  Result<Pruned> prune(const Keep& keep);
  // What the runner prunes by whenever it ends: 90 days and 20,000 jobs unless it is set.
  Result<Keep> keep();
  Status set_keep(const Keep& keep);

  // What is to be said of a database that was mended, for as long as the damaged file is kept; else empty.
  Result<std::string> said_of_damage();

  Status ensure_runner() const { return queue::ensure_runner(*folder_, program_); }
  bool runner_alive() const { return queue::runner_alive(*folder_); }
  const Folder& folder() const { return *folder_; }

 private:
  Queue(std::shared_ptr<const Folder> folder, Program program, Store store)
      : folder_(std::move(folder)), program_(std::move(program)), store_(std::move(store)) {}
  static Result<Store> open_store(const Folder& folder);
  // Opens the store again where another database has taken its place.
  Status follow_if_moved();
  // Asks the store, and once more where its database was damaged and has been mended (mend.h).
  template <class Ask>
  auto asking(const Ask& ask) -> decltype(ask());
  Status set(const char* setting, int64_t value);
  Status hold(const std::vector<JobId>& ids, bool held);
  Status catch_up();
  // Looks whenever something has changed, until `over` says so. Where there is work there is a runner.
  Status wait_until(std::optional<std::chrono::milliseconds> limit, const std::function<bool()>& cancelled,
                    const std::function<Result<bool>()>& over);
  void catch_up_or_say();
  void judge(JobLine& job, const struct Life& life) const;
  // After a change: the runner looks, or there is one soon.
  void changed() const;

  std::shared_ptr<const Folder> folder_;
  Program program_;
  Store store_;
};

}  // namespace innkeeper::queue
