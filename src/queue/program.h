// Starts the runner, and tells whether one is alive. There is no daemon: a program that adds a job, or waits
// for one, starts the runner if it is missing.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "queue/queue_directory.h"

namespace innkeeper::queue {

// Command line of a program that calls run_runner() (runner.h) with its last argument, the queue's directory.
// Empty: `innkeeper queue runner`, found by INNKEEPER_PROGRAM or PATH.
struct Program {
  std::vector<std::string> words;
};

// Returns whether a runner holds its lock.
bool runner_alive(const QueueDirectory& directory);

// Starts a runner if there is none. Returns once the runner has begun and has recorded the jobs that ended
// unseen. The runner is no child of the caller. Blocks for a few milliseconds. Inside one of the directory's
// own jobs the call leaves the start to the job's supervisor, which acts within two seconds. A runner below a
// job would end with it.
Status ensure_runner(const QueueDirectory& directory, const Program& program);

// Starts the runner for a job's supervisor, without waiting. The runner is not
// below the job, and so outlives it.
void ensure_runner_outside(const QueueDirectory& directory, const Program& program);

}  // namespace innkeeper::queue
