// Shows an engine to `innkeeper top`, in a file of the lease folder that lives as long as its process.
//
// It has a thread of its own that looks at the engine's counters now and then, so operators pay nothing. It
// makes no folder: until there is one (`innkeeper top` makes it) nothing is written. What goes wrong is
// logged and changes nothing else.
//
// The file is named r<id>. Its lock is its life, as a lease's is (lease/store.h): after a crash it is dead,
// and removed by the user's next process that publishes. A child of fork() shows nothing.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "board/record.h"

namespace innkeeper::board {

class Publisher {
 public:
  // `look` is called from the publisher's thread, and must take no lock that is held for long.
  using Look = std::function<std::vector<NodeRow>()>;
  explicit Publisher(Look look, std::chrono::milliseconds every = std::chrono::milliseconds(500));
  ~Publisher();  // waits for a look that is under way
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

 private:
  struct State;
  State* state_;
};

}  // namespace innkeeper::board
