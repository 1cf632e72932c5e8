// Containers: do those who share the GPUs outside of this one see the leases that are made in it?
#pragma once

#include <string>

#include "lease/directory.h"

namespace innkeeper::lease {

// As Docker, Podman, Kubernetes, Apptainer, LXC and systemd-nspawn say it to what they run.
bool in_container();

// A mount of the machine's covers the folder. False for what an engine gives a container of its own: its
// root, a tmpfs, a volume of its pod.
bool is_from_outside(const std::string& path);

// Why nobody outside sees the leases in this folder; empty where they do, where this is no container, and
// where INNKEEPER_LEASE_DIR names a folder of one's own, who so says that it is meant.
std::string unseen_outside(const Directory& directory);

}  // namespace innkeeper::lease
