// Logging out: systemd removes what its user has in /dev/shm, in folders below it too, when the last of his
// sessions ends (RemoveIPC= in logind.conf(5), on by default), whoever still has it open. It leaves alone
// root's, system users', and those of users who linger (loginctl enable-linger).
#pragma once

#include <string>

#include "lease/directory.h"

namespace innkeeper::lease {

// Why this user's leases in the folder vanish then; empty: they stay.
std::string removed_at_logout(const Directory& directory);

// As in logind.conf(5) and the files beside it, below `root` ("" for this machine's).
bool logind_removes_ipc(const std::string& root);

}  // namespace innkeeper::lease
