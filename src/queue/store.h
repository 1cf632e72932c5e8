// The queue's database: jobs, what they need, their attempts. Every change is one transaction, and each
// leaves a state from which any runner can go on (docs/design/queue.md).
//
// The store knows no processes. What it says of a running job is what was last written down; whether it lives
// is for life.h to say.
//
// One thread at a time. Not to be used in a child of fork().
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "queue/database.h"
#include "queue/folder.h"
#include "queue/job.h"

namespace innkeeper::queue {

// Not 0: nothing is claimed.
inline constexpr const char* kPausedSetting = "paused";

// What to list. By id.
struct Filter {
  std::optional<std::vector<State>> states;  // none: all
  JobId array = 0;                           // only this array's jobs
  int64_t newest = 0;                        // at most so many, the last added; 0: all
};

// What is kept of how an attempt ended.
struct Ending {
  How how = How::unknown;
  int code = 0;
  int64_t ended_ns = 0;
  Bytes peak_host;
};

// A running job as the runner needs it.
struct Running {
  JobId id = 0;
  int attempt = 0;
  bool cancel = false;  // asked for
  bool held = false;
  int cards = 0;
  int cpu_slots = 0;
  std::string boot_id;  // of the boot in which it was begun
  int64_t started_ns = 0;
};

// What decides whether a queued job can start; read often.
struct Ready {
  JobId id = 0;
  int cpu_slots = 0;
};

// The first of those ready jobs whose requests for cards are granted or refused alike. The best is the least.
struct Head {
  int64_t shape = 0;
  int priority = 0;
  JobId id = 0;
  bool operator<(const Head& other) const {
    return priority != other.priority ? priority > other.priority : id < other.id;
  }
};

// What a command needed when it ran before.
struct Measured {
  int64_t runs = 0;
  Bytes peak_memory;  // of its fullest card; 0: unknown
  Bytes peak_host;
};

// How much history stays. Each is a bound of its own.
struct Keep {
  std::optional<std::chrono::nanoseconds> age;  // since the job's end; none: however old
  std::optional<int64_t> jobs;                  // so many that ended last; none: all
};
// Limits on what the runner deletes by itself. A wrong clock, at that time or when a job ended, must not
// delete the history; so a job also counts as no older than the jobs that were added before it.
struct Care {
  int64_t now_ns = 0;    // see careful_now()
  int64_t at_least = 0;  // so many jobs that ended last never go for their age
};
struct Pruned {
  int64_t jobs = 0;
  Bytes output;  // their files'
};

class Store {
 public:
  static Result<Store> open(const Folder& folder, Durable durable);

  // One transaction: all of them or none. `environment` and `directory` are filled in already. Ids follow
  // each other. Fails if the spec makes no sense, or needs a job that did not succeed.
  Result<std::vector<JobId>> add(const JobSpec& spec);

  Result<std::vector<JobLine>> list(const Filter& filter);
  Result<std::vector<JobLine>> ended_last(int64_t count);  // so many, by id
  Result<Job> get(JobId id);                               // invalid_argument: there is no such job
  Result<JobLine> line(JobId id);
  // The same; of a pruned job its id, array and state only.
  Result<JobLine> known(JobId id);
  // An array's jobs by id, also when they were pruned.
  Result<std::vector<JobId>> members(JobId array);

  // For the runner.
  Result<std::vector<Ready>> ready(int limit);  // without cards, in their order
  // With cards: the first of each shape, in their order, at most so many; and the first of one shape.
  Result<std::vector<Head>> heads(int limit);
  Result<std::optional<Head>> head(int64_t shape);
  Result<std::vector<Running>> running();
  // Makes a ready job running, as its next attempt, which is `attempt`. False: it is not ready any more, or
  // the queue has been paused since the runner looked.
  Result<bool> claim(JobId id, int attempt, const std::string& cards, const std::string& boot_id);
  // The attempt is over: gives the job's new state. Says the old one if it was over already. `reason`: what
  // there is to say of it besides.
  Result<State> finish(JobId id, int attempt, const Ending& ending, const std::string& reason = "");
  // It never began: the job is queued again (or cancelled, if that was asked for).
  Status take_back(JobId id, int attempt);
  // A queued one can never run: it has failed.
  Status give_up(JobId id, const std::string& reason);
  // Why it does not run yet.
  Status explain(JobId id, const std::string& reason);
  Status measured(JobId id, int attempt, Bytes peak_memory);

  // Queued jobs are cancelled at once; of running ones it is noted. All or none: or the end of one would let
  // another begin meanwhile. Gives what they were.
  Result<std::vector<State>> cancel(const std::vector<JobId>& ids);
  // All or none, but for those that have ended. Gives how many have not.
  Result<int64_t> hold(const std::vector<JobId>& ids, bool held);

  Result<int64_t> setting(const std::string& name, int64_t otherwise);
  Status set(const std::string& name, int64_t value);
  Status set_all(const std::vector<std::pair<std::string, int64_t>>& values);  // or none
  Result<bool> paused();
  Result<Measured> measured_of(const std::string& directory, const std::vector<std::string>& command);

  // Forgets jobs that have ended, and removes their output, the oldest first: at least `enough` of them (an
  // array goes at once) or all that may go. What waits or runs stays, an array of which anything stays, and
  // an output that somebody has open. How each ended is known for ever, so that others may still need it.
  // One transaction.
  Result<Pruned> prune(const Keep& keep, const Folder& folder, int64_t enough,
                       const std::optional<Care>& care = std::nullopt);
  // Drops what no job refers to any more, and gives the room back to the disk. What commands needed stays.
  Status tidy();

  // Something of it was damaged, since this was asked last (mend.h).
  bool take_damage() { return database_->take_damage(); }
  // Another database has taken its place (mend.h), so that the store must be opened again.
  bool moved() const { return database_->moved(); }

  // Changes whenever another connection has changed something.
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

// Words with a NUL behind each, as /proc has them.
std::string join_words(const std::vector<std::string>& words);
std::vector<std::string> split_words(std::string_view bytes);

}  // namespace innkeeper::queue
