// What the runner does at each look: notes what has ended, passes on what users want of running jobs, starts
// what is ready. Holds nothing that is not in the database or the life files: a successor knows as much.
//
// Order: priority, then who was added first. A job without cards waits for CPU slots, strictly in that order.
// One with cards is tried in that order too; if the first cannot have its cards now it stands in line for
// them among all users (line.h), and later ones may have what it does not wait for.
//
// One thread at a time.
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
inline constexpr const char* kKeepAgeSetting = "keep_age_ns";  // -1: for ever
inline constexpr const char* kKeepJobsSetting = "keep_jobs";   // -1: all
// How much history the runner keeps unless set: enough to look things up, little enough to forget about.
inline constexpr std::chrono::hours kKeepAge{90 * 24};
inline constexpr int64_t kKeepJobs = 20'000;
inline constexpr int64_t kKeptByAge = 1'000;  // jobs that never go for their age

// What is set.
Result<Keep> keep_setting(Store& store);

// Nothing runs, and nothing could start however long one waits: until somebody changes something.
Result<bool> nothing_to_do(Store& store);

// Lets a job see the cards of its lease alone; without a lease none.
void show_cards(std::vector<std::string>& environment, const lease::Lease& lease);

// How many CPUs this process may use: how many slots there are unless set.
int usable_cpus();

class Scheduler {
 public:
  Scheduler(const Folder& folder, const Program& program, Store store);

  // For the runner's beginning: notes what ended while there was none.
  Status catch_up() { return reap(); }
  // Removes life files of attempts that are over: what a killed runner left.
  Status clear_leftovers();
  // One look at everything. A failure is the database's.
  Status pass();
  // The database has been replaced by another (mend.h): what this one does is lost.
  bool moved() const { return store_.moved(); }
  Result<bool> nothing_to_do() { return queue::nothing_to_do(store_); }
  // Forgets some of what is older than is to be kept. False: there is no more.
  Result<bool> prune();
  // How long to wait for an event before the next look.
  std::chrono::milliseconds patience() const;
  // Can be read when cards were given.
  int descriptor() const { return line_.descriptor(); }

 private:
  // What this runner has told a running job's supervisor.
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
  Status start_without_cards();
  Status start_with_cards();
  Status take_from_line();
  Status start(JobId id, lease::Lease lease);
  Status explain(JobId id, const std::string& reason);
  Status measure_running();
  void notify(const Job& job) const;
  lease::Arbiter* arbiter(std::string& problem);

  const Folder& folder_;
  const Program& program_;
  Store store_;
  const std::string boot_id_;
  std::vector<Running> running_;  // as of the last reap()
  std::map<JobId, Told> told_;
  std::map<JobId, std::string> reasons_;
  std::optional<lease::Arbiter> arbiter_;
  Line line_;
  int64_t seen_version_ = -1;
  bool pruned_ = false;  // and not tidied yet
  int64_t ended_ = 0;    // jobs since the last prune()
  bool changed_ = true;  // cards may be free, or jobs ready, that were not
  std::chrono::steady_clock::time_point cards_again_{}, cards_not_before_{}, measure_again_{}, young_until_{};
};

}  // namespace innkeeper::queue
