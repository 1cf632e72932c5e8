// The kernel's namespaces of this process, where they change the meaning of numbers.
#pragma once

#include <sys/types.h>

#include <optional>

namespace innkeeper {

// Returns the number by which users appear that have none in this user namespace, root among them. None:
// numbers are the machine's. That is not so in `unshare --map-root-user` and in containers without root: user
// 0 is there the user that created the namespace.
std::optional<uid_t> unmapped_user();

// Returns whether /proc shows this process's PID namespace. False if a namespace was created and kept the old
// /proc: numbers under /proc are then other processes'.
bool proc_is_ours();

// Returns whether shared memory and message queues are the machine's, as /dev/shm is then likely to be.
bool ipc_is_the_machines();

}  // namespace innkeeper
