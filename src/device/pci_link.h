// Bandwidth limit of copies between the host and a GPU on PCI Express.
//
// Thread safety: all functions.
#pragma once

#include <optional>
#include <string>

namespace innkeeper {

// Returns the bytes per second that large page-locked copies reach in one direction, for a PCI device such
// as "0000:3b:00.0". It is the rated speed of its lanes and of those of the port above it, minus packet
// headers. (The present speed may be lower: an idle GPU slows its link down.) None: the system does not
// tell, or has no such device.
std::optional<double> pci_link_bandwidth(const std::string& pci_address, const std::string& sys = "/sys");

}  // namespace innkeeper
