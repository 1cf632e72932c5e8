// Measures the links of GPUs for calibrate: copies between each GPU and the host, and between each two. It
// uses the CUDA driver's interface (libcuda.so.1, loaded on demand). It creates contexts, so it needs a
// process of its own, never one that runs a user's program.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "telemetry/snapshot.h"

namespace innkeeper::cli {

inline constexpr const char* kHostEnd = "host";

struct LinkRate {
  std::string from, to;  // kHostEnd, or a UUID.
  bool direct = true;    // False: copies between two GPUs pass through the host.
  double rate = 0;       // Bytes per second, best of several rounds.
  double latency = 0;    // Seconds to copy one page, median.
};

// Memory on a GPU that measuring needs in addition to `size`: its context.
inline constexpr Bytes kLinkOverhead = GiB(1);

// Measures the GPUs that CUDA_VISIBLE_DEVICES names now: to and from the host (pinned memory), and to each
// other. `gpus` supplies their UUIDs. Fails if there is no CUDA driver, or one that lacks or refuses a
// required call. A GPU that CUDA does not see has no links.
Result<std::vector<LinkRate>> measure_links(Bytes size, const telemetry::Snapshot& gpus);

}  // namespace innkeeper::cli
