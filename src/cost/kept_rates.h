// What a probe has measured of a GPU, kept for later programs of the same user: one file for each GPU in
// $XDG_CACHE_HOME/innkeeper/gpus, else ~/.cache/innkeeper/gpus, which `innkeeper calibrate` shows and clears.
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
  std::string uuid = {};     // of the GPU; letters, digits and "-"
  std::string name = {};     // what the driver calls it
  std::string driver = {};   // version
  std::string pytorch = {};  // version
  double link = 0;           // bytes per second that the link to the host was made for; 0: unknown
  int64_t time = 0;          // when it was measured, seconds since 1970
  // Other processes had the GPU meanwhile, or it was slowed by heat or power: not its own rates.
  bool shared = false, slowed = false;
  Measured measured = {};

  // Whether it may be used where these are the GPU, the driver, PyTorch, and the link of today. The name
  // tells a MIG instance from another part of the same GPU.
  bool holds_for(const KeptRates& today) const;
};

// Empty where neither HOME nor XDG_CACHE_HOME says where.
std::string kept_rates_folder();

// Nothing where there is no file, or one that is damaged or of another version.
std::optional<KeptRates> kept_rates(const std::string& folder, const std::string& uuid);
// Of all GPUs, by UUID.
std::vector<KeptRates> all_kept_rates(const std::string& folder);

// Makes the folder where it is not there.
Status keep_rates(const std::string& folder, const KeptRates& rates);
// Removes the files of all GPUs, with what killed writers left; returns how many GPUs there were.
Result<int> clear_kept_rates(const std::string& folder);

}  // namespace innkeeper::cost
