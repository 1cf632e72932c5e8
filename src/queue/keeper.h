// The keeper of a running job: the parent of its supervisor. It holds the attempt's life lock and its lease
// until no process of the job is left. Both therefore survive the death of the supervisor, even if the job's
// processes have closed their descriptors. The keeper starts a runner if the old one is gone.
//
// If the keeper itself is killed, the supervisor takes over these duties. The locks then end with the job's
// last process or with the supervisor, as they would without a keeper.
#pragma once

#include <functional>

#include "lease/lease.h"
#include "lease/open_file.h"
#include "queue/program.h"
#include "queue/queue_directory.h"

namespace innkeeper::queue {

// The calling process becomes the keeper. A child of it calls `supervise`, which never returns. Requires:
// SIGCHLD is blocked, and neither ignored nor handled.
[[noreturn]] void keep(const lease::OpenFile& life, lease::Lease& lease, const QueueDirectory& directory,
                       const Program& program, const std::function<void()>& supervise);

}  // namespace innkeeper::queue
