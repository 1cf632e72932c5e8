// Memory near a GPU: each processor of a machine has its own memory, and a GPU is attached to one processor.
//
// Thread safety: all functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "base/status.h"

namespace innkeeper {

// Returns the NUMA node near a PCI device such as "0000:3b:00.0". None: the system does not tell, or
// has no such device.
std::optional<int> numa_node_of(const std::string& pci_address, const std::string& sys = "/sys");

// Makes pages in [data, data + size) that are first touched from now on come from that node while it has free
// ones. Requires: `data` is page-aligned. On failure pages come from any node: slower, but correct.
Status prefer_numa_node(void* data, size_t size, int node);

}  // namespace innkeeper
