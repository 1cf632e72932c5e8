// Queries a driver for a list whose length may change between two calls.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "telemetry/answers.h"

namespace innkeeper::telemetry {

// Fills `list` by `ask_list(&count, entries) -> code`. Repeats the query with more space if the code is
// `more`. The code is 0 on success; otherwise the list is empty.
template <class Entry, class Ask>
int fill(const Ask& ask_list, int more, std::vector<Entry>& list) {
  constexpr uint32_t kFirstCapacity = 64;  // First number of entries, mostly enough for one call.
  constexpr int kMostTries = 4;            // Limit on the queries; processes may start between two calls.
  uint32_t capacity = kFirstCapacity;
  for (int attempt = 0; attempt < kMostTries; ++attempt) {
    // Allocates twice the stated length: a library with longer entries than ours stays inside.
    list.assign(size_t{capacity} * 2, Entry{});
    uint32_t count = capacity;
    const int code = ask_list(&count, list.data());
    if (code != more) {
      list.resize(code == 0 ? std::min(count, capacity) : 0);
      return code;
    }
    if (count > kMostProcesses) break;
    capacity = std::max(count, capacity) + kFirstCapacity / 2;
  }
  list.clear();
  return more;
}

}  // namespace innkeeper::telemetry
