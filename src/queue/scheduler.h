// The runner's work at each look: records ended jobs, passes users' requests on to running jobs, and starts
// ready jobs. Holds no state that the database and the life files lack: a successor knows as much.
//
// Jobs are ordered by priority, then by time of addition. A job without GPUs waits for CPU slots, strictly in
// that order. Jobs with GPUs are tried in that order too. If the first cannot have its GPUs now, it waits in
// line among all users (line.h). Later jobs may take GPUs that it does not wait for.
//
// Thread safety: one thread uses it at a time.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "queue/life.h"
#include "queue/line.h"
#include "queue/program.h"
#include "queue/store.h"

namespace innkeeper::queue {

inline constexpr const char* kSlotsSetting = "cpu_slots";
// Setting: age that the history may reach, ns; -1: unlimited.
inline constexpr const char* kKeepAgeSetting = "keep_age_ns";
// Setting: number of ended jobs to keep; -1: all.
inline constexpr const char* kKeepJobsSetting = "keep_jobs";
// Default size of the history: enough to look things up, little enough to ignore.
inline constexpr std::chrono::hours kKeepAge{90 * 24};
inline constexpr int64_t kKeepJobs = 20'000;
inline constexpr int64_t kKeptByAge = 1'000;  // Number of jobs that are never pruned for their age.

// Returns the configured bounds.
Result<Keep> keep_setting(Store& store);

// Returns whether no job runs and none could start until a user changes something.
Result<bool> nothing_to_do(Store& store);

// Restricts a job's visible GPUs to those of its lease; without a lease it sees none.
void show_gpus(std::vector<std::string>& environment, const lease::Lease& lease);

// Returns how many CPUs this process may use; the default number of slots.
int usable_cpus();

class Scheduler {
 public:
  Scheduler(const QueueDirectory& directory, const Program& program, Store store);

  // Called when the runner begins: records the jobs that ended while there was none.
  Status catch_up() { return reap(); }
  // Removes life files of attempts that are over, which a killed runner may leave.
  Status clear_leftovers();
  // Runs one pass over all jobs. A failure comes from the database.
  Status pass();
  // Returns whether another database has replaced this one (mend.h); later changes to this one are lost.
  bool moved() const { return store_.moved(); }
  Result<bool> nothing_to_do() { return queue::nothing_to_do(store_); }
  // Prunes a part of the history. Returns false if no job is left to prune.
  Result<bool> prune();
  // Time to wait for an event before the next look.
  std::chrono::milliseconds patience() const;
  // Becomes readable when GPUs were granted.
  int descriptor() const { return line_.descriptor(); }

 private:
  // Requests that this runner has passed on to a running job's supervisor.
  struct Told {
    int attempt = 0;
    bool cancel = false;
    std::optional<bool> held;
  };

  Status reap();
  Status over(const Running& job, const Ending& ending, const std::string& reason);
  Ending unseen(const Running& job) const;
  std::string why_unseen(const Running& job, const Life& life) const;
  void tell(const Running& job, const std::string& path);
  Status start_without_gpus();
  Status start_with_gpus();
  Status take_from_line();
  Status start(JobId id, lease::Lease lease);
  Status explain(JobId id, const std::string& reason);
  Status measure_running();
  void notify(const Job& job) const;
  lease::Arbiter* arbiter(std::string& problem);

  const QueueDirectory& directory_;
  const Program& program_;
  Store store_;
  const std::string boot_id_;
  std::vector<Running> running_;  // Running jobs as of the last reap().
  std::map<JobId, Told> told_;
  std::map<JobId, std::string> reasons_;
  std::optional<lease::Arbiter> arbiter_;
  Line line_;
  int64_t seen_version_ = -1;
  bool pruned_ = false;  // True: jobs were pruned and the database is not tidied yet.
  int64_t ended_ = 0;    // Number of jobs that ended since the last prune().
  bool changed_ = true;  // True: GPUs may have become free, or jobs ready, since the last look.
  std::chrono::steady_clock::time_point gpus_again_{}, gpus_not_before_{}, measure_again_{}, young_until_{};
};

}  // namespace innkeeper::queue
