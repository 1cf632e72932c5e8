// Models of links between a GPU, its host, other GPUs, and disks. Sources stand beside each row in
// link_model.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace innkeeper::cost {

// One direction of a link. Both directions work at once at this rate each.
struct LinkModel {
  std::string name;
  double bandwidth = 0;  // bytes per second that large copies reach; of a host's link, of page-locked memory
  double latency = 0;    // seconds
  double pageable = 0;   // bytes per second to and from pageable memory; 0: no other rate
};

std::span<const LinkModel> link_models();

// In any of the usual spellings: "PCIe 5 x16", "pcie5x16", "PCIe 5.0 x16", "NVLink 4". Also "custom:GB/s", as
// custom:48. Fails as gpu_named().
Result<LinkModel> link_named(std::string_view name);

LinkModel default_host_link();  // of the simulator
LinkModel default_peer_link();

}  // namespace innkeeper::cost
