// Which of the kernel's namespaces this process is in, where that changes what numbers mean.
#pragma once

#include <sys/types.h>

namespace innkeeper {

// Users are the machine's. False in `unshare --map-root-user` and in containers without root: user 0 is there
// whoever made the namespace, and all users who have no number there appear as unmapped_user().
bool users_are_the_machines();
uid_t unmapped_user();

// /proc speaks of the PID namespace that this process is in. False where a namespace was made and the old
// /proc left in it: numbers under /proc are then other processes'.
bool proc_is_ours();

// Shared memory and message queues are the machine's, as /dev/shm is then likely to be.
bool ipc_is_the_machines();

}  // namespace innkeeper
