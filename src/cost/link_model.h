// Models of links between a GPU, its host, other GPUs, and disks. Each row in link_model.cc names its source.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace innkeeper::cost {

// One direction of a link. Both directions work concurrently at this rate each.
struct LinkModel {
  std::string name;
  // Bytes per second that large copies reach; on a host's link, with page-locked memory.
  double bandwidth = 0;
  double latency = 0;   // Seconds.
  double pageable = 0;  // Bytes per second to and from pageable memory; 0: no separate rate.
};

std::span<const LinkModel> link_models();

// Returns the link of this name, in any usual spelling: "PCIe 5 x16", "pcie5x16", "PCIe 5.0 x16", "NVLink 4".
// Also accepts "custom:GB/s", as custom:48. Fails as gpu_named().
Result<LinkModel> link_named(std::string_view name);

LinkModel default_host_link();  // The simulator's default.
LinkModel default_peer_link();

}  // namespace innkeeper::cost
