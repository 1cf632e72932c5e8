// What calibrate measures of this machine: rates in bytes per second and latencies in seconds. src/cost has
// them of data sheets.
#pragma once

#include <string>

#include "base/status.h"
#include "base/types.h"

namespace innkeeper::cli {

inline constexpr int kRounds = 5;  // of which the best counts
inline constexpr size_t kPageBytes = 4096;

struct HostRates {
  int threads = 1;
  double copy_one = 0;  // by one thread: bytes copied per second (each is read and written)
  double copy_all = 0;  // by all threads together
};

struct DiskRates {
  bool direct = false;  // past the page cache
  double write = 0, read = 0;
  double latency = 0;  // of reading one page, the median
};

// Copies `size` at a time, the best of several rounds. Fails if there is no memory for it.
Result<HostRates> measure_host(Bytes size);

// Through the disk node itself (device/disk.h), by a file without a name in `folder`.
Result<DiskRates> measure_disk(const std::string& folder, Bytes size);

}  // namespace innkeeper::cli
