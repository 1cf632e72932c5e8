// The places in the line: which of them count, and in what order they are served.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "lease/request.h"
#include "lease/store.h"

namespace innkeeper::lease {

// A place must be touched within this, or be a running process's that has had no processor for a while.
inline constexpr std::chrono::seconds kPlaceLost{5};
inline constexpr std::chrono::seconds kStarvedAtMost{60};

// So many at the front of the line wait in another way than the rest (wait.h).
inline constexpr int kFront = 8;

// Where a request stood at its last attempt.
struct Turn {
  int ahead = 0;      // places that come first
  int files = 0;      // of the folder, which each attempt reads
  std::string guard;  // of the places ahead the one kFront before its own; empty: there are not so many
};

// Its process is stopped, or gives no sign: the place does not count until it does. `pid_namespace`: this
// process's. Slow where the place was not touched in time (/proc).
bool is_lost(const Entry& place, int64_t now_ns, uint64_t pid_namespace);

// The places that go before `own` (before a newcomer: all), in their order. Only the owner of a lease
// can wait for a part of it. The pointers are into `live`.
std::vector<const Entry*> places_ahead(const std::vector<Entry>& live, const Request& request, uint32_t user,
                                       const Entry* own, int64_t now_ns, uint64_t pid_namespace);

}  // namespace innkeeper::lease
