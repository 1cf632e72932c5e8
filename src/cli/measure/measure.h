// Measurements of this machine for calibrate: rates in bytes per second and latencies in seconds. src/cost
// has the same figures from data sheets.
#pragma once

#include <string>

#include "base/status.h"
#include "base/types.h"

namespace innkeeper::cli {

inline constexpr int kRounds = 5;  // Number of measurements, of which the best counts.
inline constexpr size_t kPageBytes = 4096;

struct HostRates {
  int threads = 1;
  double copy_one = 0;  // Bytes copied per second by one thread (each is read and written).
  double copy_all = 0;  // Bytes copied per second by all threads together.
};

struct DiskRates {
  bool direct = false;  // True: the reads and writes bypass the page cache.
  double write = 0, read = 0;
  double latency = 0;  // Seconds to read one page, median.
};

// Measures copies of `size` bytes, best of several rounds. Fails if there is no memory for it.
Result<HostRates> measure_host(Bytes size);

// Measures the disk through the disk node itself (device/disk.h), by a file without a name in `directory`.
Result<DiskRates> measure_disk(const std::string& directory, Bytes size);

}  // namespace innkeeper::cli
