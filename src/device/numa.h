// Memory near a card: of several processors of a machine each has memory of its own, and a card hangs at one.
//
// Thread safety: all functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "base/status.h"

namespace innkeeper {

// The node near a PCI device, as "0000:3b:00.0". None where the system does not say, or has no such device.
std::optional<int> numa_node_of(const std::string& pci_address, const std::string& sys = "/sys");

// Pages in [data, data + size) that are first touched from now on come from that node while it has some.
// Requires: `data` is page-aligned. Where it fails pages come as before: farther, and right.
Status prefer_numa_node(void* data, size_t size, int node);

}  // namespace innkeeper
