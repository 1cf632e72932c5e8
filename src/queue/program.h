// Starting the runner, and asking whether there is one. There is no daemon: whoever adds a job, or waits for
// one, starts it where it is missing.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "queue/folder.h"

namespace innkeeper::queue {

// The command line of a program that calls run_runner() (runner.h) with its last argument, the queue's
// folder. Empty: `innkeeper queue runner`, where INNKEEPER_PROGRAM or PATH has it.
struct Program {
  std::vector<std::string> words;
};

// A runner holds its lock.
bool runner_alive(const Folder& folder);

// Starts one, if there is none. Returns when it has begun, and has noted what ended unseen, and leaves it
// behind: it is no child of the caller. Blocks: for a few milliseconds. Inside of one of the folder's own
// jobs it leaves that to the job's supervisor, within two seconds: a runner below a job would end with it.
Status ensure_runner(const Folder& folder, const Program& program);

// The same for a job's supervisor, without waiting: the runner is not below it, and so outlives its job.
void ensure_runner_outside(const Folder& folder, const Program& program);

}  // namespace innkeeper::queue
