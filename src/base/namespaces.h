// Which of the kernel's namespaces this process is in, where that changes what numbers mean.
#pragma once

#include <sys/types.h>

#include <optional>

namespace innkeeper {

// The number as which users appear that have none in this user namespace, root among them. None where numbers
// are the machine's, which they are not in `unshare --map-root-user` and in containers without root: user 0
// is there the user who made the namespace.
std::optional<uid_t> unmapped_user();

// /proc speaks of the PID namespace that this process is in. False where a namespace was made and the old
// /proc left in it: numbers under /proc are then other processes'.
bool proc_is_ours();

// Shared memory and message queues are the machine's, as /dev/shm is then likely to be.
bool ipc_is_the_machines();

}  // namespace innkeeper
