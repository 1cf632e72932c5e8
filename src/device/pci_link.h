// How fast copies between the host and a card on PCI Express can be.
//
// Thread safety: all functions.
#pragma once

#include <optional>
#include <string>

namespace innkeeper {

// Bytes a second in one direction that large page-locked copies reach, to a PCI device, as "0000:3b:00.0":
// what its lanes and those of the port above it were made for, less packets' headers. (The speed of the
// moment is lower: an idle card slows its link down.) None where the system does not say, or has no such
// device.
std::optional<double> pci_link_bandwidth(const std::string& pci_address, const std::string& sys = "/sys");

}  // namespace innkeeper
