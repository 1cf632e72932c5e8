// Figures of real cards and links, for the simulator's clock and for plans. Sources stand beside each row in
// cards.cc.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/types.h"

namespace innkeeper::sim {

// A card's rates. flops: dense fp32-accumulate matrix rate in the precision that training uses (see the row).
struct Card {
  std::string_view name;
  Bytes memory;
  double flops;           // per second
  double bandwidth;       // of its memory, bytes per second
  double launch_seconds;  // added to each kernel
};

// One direction of a link.
struct Link {
  std::string_view name;
  double bandwidth;     // bytes per second; of the host's link: to and from page-locked memory
  double latency;       // seconds
  double pageable = 0;  // bytes per second to and from pageable memory; 0: no other rate
};

std::span<const Card> cards();
std::span<const Link> links();
std::optional<Card> find_card(std::string_view name);  // "H200", "H100", "A100", "RTX 4090", "L4"
std::optional<Link> find_link(
    std::string_view name);  // "PCIe 4 x16", "PCIe 5 x16", "NVLink 4", "NVMe 4", ...

// "H100, A100, ...": for messages.
template <class Row>
std::string names_of(std::span<const Row> rows) {
  std::string names;
  for (const Row& row : rows) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

Card default_card();
Link default_host_link();
Link default_peer_link();

}  // namespace innkeeper::sim
