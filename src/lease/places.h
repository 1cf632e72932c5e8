// The places in the line: which of them count, and in what order they are served.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "lease/request.h"
#include "lease/store.h"

namespace innkeeper::lease {

// A place must be touched within this, or be a running process's that has had no processor for a while.
inline constexpr std::chrono::seconds kPlaceLost{5};
inline constexpr std::chrono::seconds kStarvedAtMost{60};

// Its process is stopped, or gives no sign: the place does not count until it does. `pid_namespace`: this
// process's. Slow where the place was not touched in time (/proc).
bool is_lost(const Entry& place, int64_t now_ns, uint64_t pid_namespace);

// The places that go before `own` (before a newcomer: all), in their order. Inside a lease only its owner
// stands in line: nobody else can have a part of it. Pointers into `live`.
std::vector<const Entry*> places_ahead(const std::vector<Entry>& live, const Request& request, uint32_t user,
                                       const Entry* own, int64_t now_ns, uint64_t pid_namespace);

}  // namespace innkeeper::lease
