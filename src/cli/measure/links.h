// What calibrate measures of cards: copies between each and the host, and between each two, by the CUDA
// driver's own interface (libcuda.so.1, loaded when asked). It makes contexts, so it is for a process of its
// own: never for one that a user's program runs in.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "telemetry/snapshot.h"

namespace innkeeper::cli {

inline constexpr const char* kHostEnd = "host";

struct LinkRate {
  std::string from, to;  // kHostEnd, or a UUID
  bool direct = true;    // not by way of the host, though neither end is the host
  double rate = 0;       // bytes per second, the best of several rounds
  double latency = 0;    // of copying one page, the median
};

// What measuring needs of a card besides `size`: its context.
inline constexpr Bytes kLinkOverhead = GiB(1);

// Measures the cards that CUDA_VISIBLE_DEVICES names now: to and from the host (pinned memory), and to each
// other. `cards` gives them their UUIDs. Fails if there is no CUDA driver, or one that lacks or refuses what
// is needed; a card that CUDA does not see has no links.
Result<std::vector<LinkRate>> measure_links(Bytes size, const telemetry::Snapshot& cards);

}  // namespace innkeeper::cli
