// Asking a driver for a list whose length may change between two calls.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "telemetry/answers.h"

namespace innkeeper::telemetry {

// Fills `list` with what `ask_list(&count, entries) -> code` tells; asks again with more room where it
// answers `more`. The code is 0 on success, and the list empty otherwise.
template <class Entry, class Ask>
int fill(const Ask& ask_list, int more, std::vector<Entry>& list) {
  constexpr uint32_t kFirstRoom = 64;  // mostly enough, so that one call does
  constexpr int kMostTries = 4;        // between two calls processes may start
  uint32_t room = kFirstRoom;
  for (int attempt = 0; attempt < kMostTries; ++attempt) {
    // Twice the room: a library that takes entries to be longer than we do stays inside.
    list.assign(size_t{room} * 2, Entry{});
    uint32_t count = room;
    const int code = ask_list(&count, list.data());
    if (code != more) {
      list.resize(code == 0 ? std::min(count, room) : 0);
      return code;
    }
    if (count > kMostProcesses) break;
    room = std::max(count, room) + kFirstRoom / 2;
  }
  list.clear();
  return more;
}

}  // namespace innkeeper::telemetry
