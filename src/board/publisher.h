// Shows an engine to `innkeeper top`, by a file in the lease directory that lives as long as its process.
//
// Its own thread reads the engine's counters periodically, so operators pay no cost. It creates no
// directory: until there is one (`innkeeper top` creates it), it writes no file. A failure is logged and
// has no other effect.
//
// The file is named r<id>. Its lock is its life, as a lease's is (lease/store.h): after a crash it is dead,
// and the user's next process that publishes removes it. A child of fork() publishes no file.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "board/record.h"

namespace innkeeper::board {

class Publisher {
 public:
  // `look` is called on the publisher's thread, and must take no lock that is held for long.
  using Look = std::function<std::vector<NodeRow>()>;
  explicit Publisher(Look look, std::chrono::milliseconds every = std::chrono::milliseconds(500));
  ~Publisher();  // Waits for a `look` in progress.
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

 private:
  struct State;
  State* state_;
};

}  // namespace innkeeper::board
