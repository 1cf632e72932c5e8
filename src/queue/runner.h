// The runner: starts ready jobs, records ended ones, and exits when there is no work left. A kernel lock on
// runner.lock ensures one runner for each user and directory.
//
// The runner may be killed at any moment. Jobs go on without it. The next process to notice starts another
// one: its watcher, a caller of the queue, or a job's supervisor. The new runner continues from the
// database and the life files. A table in docs/design/queue.md lists the state that a successor finds after
// a kill at each moment.
#pragma once

#include <string>

#include "queue/program.h"

namespace innkeeper::queue {

// Implements `innkeeper queue runner DIRECTORY`. Leaves a watcher process behind, which restarts the runner
// when it is killed. Returns the program's exit status once the runner has begun or another one was found.
// Requires: the process has one thread and was made for this purpose.
int run_runner(const std::string& directory, const Program& program);

}  // namespace innkeeper::queue
