// Functions that the files of `innkeeper queue` share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "queue/queue.h"

namespace CLI {
class App;
}

namespace innkeeper::cli {

// Opens this user's queue, or fails with kDirectory. Inside a Slurm job it opens the Slurm job's own queue:
// its jobs must end with the Slurm job, and use the GPUs that Slurm granted.
queue::Queue open_queue();

// Returns the jobs that the words name, without duplicates. Fails with kUsage or kNoLease.
std::vector<queue::JobId> resolve(queue::Queue& queue, const std::vector<std::string>& words);
// Fails with the exit code that belongs to the Status of a queue call.
[[noreturn]] void fail_queue(const Status& status);
template <class T>
T value_of(Result<T> result) {
  if (!result.ok()) fail_queue(result.status());
  return std::move(result).value();
}
inline void need(const Status& status) {
  if (!status.ok()) fail_queue(status);
}

// Adds a job, and returns the number to print: its own, or its array's.
queue::JobId add_job(const class JobOptions& options, const std::vector<std::string>& words);
// Prints the number. If that fails, a message on standard error says that the job was added all the same.
// Another message says that a job waits for a GPU on a machine where none is seen.
int print_added(queue::JobId id, const class JobOptions& options);

void register_queue(CLI::App& program);
void register_slurm(CLI::App& program);
void register_queue_show(CLI::App& queue);  // Commands list, show and log.
// Commands wait, cancel, pause, resume, drain, slots and prune.
void register_queue_control(CLI::App& queue);

}  // namespace innkeeper::cli
