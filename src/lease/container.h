// Containers: tells whether programs outside this container that share its GPUs see its leases.
#pragma once

#include <string>

#include "lease/directory.h"

namespace innkeeper::lease {

// Returns whether the marks that Docker, Podman, Kubernetes, Apptainer, LXC and systemd-nspawn
// leave are present.
bool in_container();

// Returns whether a mount of the machine's covers the directory. False for mounts that an engine makes for
// the container alone: its root, a tmpfs, a volume of its pod.
bool is_from_outside(const std::string& path);

// Explains why no program outside sees the leases in this directory. Empty if programs outside do see them,
// if this is no container, or if INNKEEPER_LEASE_DIR names a private directory, whose user intends that.
std::string unseen_outside(const Directory& directory);

}  // namespace innkeeper::lease
