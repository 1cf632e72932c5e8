// The places in the line: which of them count, and in what order they are served.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "lease/request.h"
#include "lease/store.h"

namespace innkeeper::lease {

// Time within which a place must be touched. A running process that got no processor has
// until kStarvedAtMost.
inline constexpr std::chrono::seconds kPlaceLost{5};
inline constexpr std::chrono::seconds kStarvedAtMost{60};

// Number of places at the front of the line, which wait in another way than the rest (wait.h).
inline constexpr int kFront = 8;

// Position of a request in the line at its last attempt.
struct Turn {
  int ahead = 0;      // Number of places that come first.
  int files = 0;      // Number of files in the directory, which each attempt reads.
  std::string guard;  // Id of the place kFront before its own; empty: fewer places are ahead.
};

// Returns whether the place's process is stopped or shows no sign of life: the place does not count until it
// does. `pid_namespace`: this process's. Slow if the place was not touched in time (/proc).
bool is_lost(const Entry& place, int64_t now_ns, uint64_t pid_namespace);

// Returns the places that precede `own` (for a newcomer: all), in their order. Only the owner of a lease can
// wait for a part of it. The pointers are into `live`.
std::vector<const Entry*> places_ahead(const std::vector<Entry>& live, const Request& request, uint32_t user,
                                       const Entry* own, int64_t now_ns, uint64_t pid_namespace);

}  // namespace innkeeper::lease
