// Rates that a probe has measured of a GPU, stored for later programs of the same user. Each GPU has
// one file in $XDG_CACHE_HOME/innkeeper/gpus, else ~/.cache/innkeeper/gpus. `innkeeper calibrate` shows
// and clears them.
//
// Thread safety: all functions, in several processes too: a file is written under another name first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cost/measured.h"

namespace innkeeper::cost {

struct KeptRates {
  std::string uuid = {};     // UUID of the GPU; letters, digits and "-".
  std::string name = {};     // The driver's name of it.
  std::string driver = {};   // Version of the driver.
  std::string pytorch = {};  // Version of PyTorch.
  double link = 0;           // Rated bytes per second of the link to the host; 0: unknown.
  int64_t time = 0;          // Time of the measurement, seconds since 1970.
  // True: other processes used the GPU meanwhile, or heat or power slowed it, so these are not its own rates.
  bool shared = false, slowed = false;
  Measured measured = {};

  // Returns whether the rates apply to the GPU, driver, PyTorch and link of `today`. The name distinguishes a
  // MIG instance from another part of the same GPU.
  bool holds_for(const KeptRates& today) const;
};

// Returns the directory; empty if neither HOME nor XDG_CACHE_HOME is set.
std::string kept_rates_directory();

// Returns the stored rates; none if there is no file, or one that is damaged or of another version.
std::optional<KeptRates> kept_rates(const std::string& directory, const std::string& uuid);
// Returns the rates of all GPUs, by UUID.
std::vector<KeptRates> all_kept_rates(const std::string& directory);

// Stores the rates; creates the directory if it is missing.
Status keep_rates(const std::string& directory, const KeptRates& rates);
// Removes the files of all GPUs, and drafts of killed writers; returns the number of GPUs.
Result<int> clear_kept_rates(const std::string& directory);

}  // namespace innkeeper::cost
