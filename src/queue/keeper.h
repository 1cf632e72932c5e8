// The keeper of a job that runs: its supervisor's parent. It holds the attempt's life lock and its lease
// until nothing of the job is left, so that both stay where the supervisor is killed, also while those of the
// job's processes live that have closed them. It starts a runner where the old one is gone.
//
// Where it is killed itself the supervisor does that, and the locks end with the job's last process or with
// the supervisor, as they would without it.
#pragma once

#include <functional>

#include "lease/lease.h"
#include "lease/open_file.h"
#include "queue/folder.h"
#include "queue/program.h"

namespace innkeeper::queue {

// The calling process becomes the keeper, and a child of it calls `supervise`, which never returns. Requires:
// SIGCHLD is blocked, and neither ignored nor handled.
[[noreturn]] void keep(const lease::OpenFile& life, lease::Lease& lease, const Folder& folder,
                       const Program& program, const std::function<void()>& supervise);

}  // namespace innkeeper::queue
