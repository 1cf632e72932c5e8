// Logout: when a user's last session ends, systemd removes the user's files in /dev/shm and in directories
// below it, even if processes have them open. The setting is RemoveIPC= in logind.conf(5), on by default. It
// spares files of root, of system users, and of users that linger (loginctl enable-linger).
#pragma once

#include <string>

#include "lease/directory.h"

namespace innkeeper::lease {

// Returns why a logout removes this user's leases in the directory; empty: they stay.
std::string removed_at_logout(const Directory& directory);

// Reads the setting from logind.conf(5) and the files beside it, below `root` ("": this machine's).
bool logind_removes_ipc(const std::string& root);

}  // namespace innkeeper::lease
