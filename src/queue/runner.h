// The runner: starts what is ready, notes what has ended, and goes when there is nothing left to do. One for
// each user and folder, by a kernel lock on runner.lock.
//
// It may be killed at any moment. Jobs go on without it; whoever comes next (its watcher, a caller of the
// queue, a job's supervisor) starts another, which goes on from the database and the life files. What stands
// where at each moment, and so what a successor finds, is the table in docs/design/queue.md.
#pragma once

#include <string>

#include "queue/program.h"

namespace innkeeper::queue {

// What `innkeeper queue runner FOLDER` does. Leaves a watcher behind, which starts the runner again when it
// is killed, and returns when the runner has begun, or has found that there is one: the program's exit
// status. Requires: the process has one thread, and was made for this.
int run_runner(const std::string& folder, const Program& program);

}  // namespace innkeeper::queue
