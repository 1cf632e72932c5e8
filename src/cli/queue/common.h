// What the files of `innkeeper queue` share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "queue/queue.h"

namespace CLI {
class App;
}

namespace innkeeper::cli {

// This user's queue, or fails with kFolder. Inside a Slurm job it is the Slurm job's own: what it starts must
// end with it, and has the cards that Slurm gave.
queue::Queue open_queue();

// The jobs that the words name, without doubles. Fails with kUsage or kNoLease.
std::vector<queue::JobId> resolve(queue::Queue& queue, const std::vector<std::string>& words);
// With the exit code that belongs to the Status of a queue call.
[[noreturn]] void fail_queue(const Status& status);
template <class T>
T value_of(Result<T> result) {
  if (!result.ok()) fail_queue(result.status());
  return std::move(result).value();
}
inline void need(const Status& status) {
  if (!status.ok()) fail_queue(status);
}

// Adds a job, and gives the number to be printed: its own, or its array's.
queue::JobId add_job(const class JobOptions& options, const std::vector<std::string>& words);
// Prints the number; where that fails it says on standard error that the job is there all the same. Says
// there, too, that a job waits for a GPU on a machine where none is seen.
int print_added(queue::JobId id, const class JobOptions& options);

void register_queue(CLI::App& program);
void register_slurm(CLI::App& program);
void register_queue_show(CLI::App& queue);     // list, show, log
void register_queue_control(CLI::App& queue);  // wait, cancel, pause, resume, drain, slots, prune

}  // namespace innkeeper::cli
