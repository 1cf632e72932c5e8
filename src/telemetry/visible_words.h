// Helpers for all lists of visible devices, for every vendor: words, notes, and the GPUs that indices count.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "telemetry/snapshot.h"

namespace innkeeper::telemetry {

inline bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

inline std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

inline bool starts_with(std::string_view text, std::string_view beginning) {
  return text.substr(0, beginning.size()) == beginning;
}

inline constexpr size_t kMost = 60;  // Longest part of an entry in a note, bytes.

// Explains why an entry, and the entries after it, do not count.
inline std::string ends_there(std::string_view variable, std::string_view entry, std::string_view why) {
  return std::string(variable) + ": " + in_quotes(entry, kMost) + " " + std::string(why) +
         "; it and what follows do not count";
}

inline std::string is_beyond(size_t count) {
  return "is beyond the " + std::to_string(count) + " GPUs that are here";
}

inline std::vector<const Gpu*> gpus_of(Vendor vendor, const Snapshot& now) {
  std::vector<const Gpu*> gpus;
  for (const Gpu& gpu : now.gpus) {
    if (gpu.vendor == vendor) gpus.push_back(&gpu);
  }
  return gpus;
}

// Returns the GPUs that an index counts: the vendor's GPUs by bus id, with nullptr in the
// places of lost ones.
inline std::vector<const Gpu*> places_of(Vendor vendor, const Snapshot& now) {
  std::vector<std::pair<std::string_view, const Gpu*>> places;
  for (const Gpu* gpu : gpus_of(vendor, now)) places.emplace_back(gpu->bus_id, gpu);
  for (const LostGpu& lost : now.lost) {
    if (lost.forbidden || lost.vendor != vendor) continue;
    auto place = places.begin() + std::min<std::ptrdiff_t>(lost.driver_index, std::ssize(places));
    if (!lost.bus_id.empty()) {
      place = std::find_if(places.begin(), places.end(), [&](const auto& other) {
        return other.first.empty() || other.first > lost.bus_id;
      });
    }
    places.emplace(place, lost.bus_id, nullptr);
  }
  std::vector<const Gpu*> result;
  for (const auto& [bus_id, gpu] : places) result.push_back(gpu);
  return result;
}

}  // namespace innkeeper::telemetry
