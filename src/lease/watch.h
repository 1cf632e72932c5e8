// Wakes a waiting thread when a lease may have ended: inotify on the lease directory, and a timer. The timer
// covers changes without an event (processes without a lease that free memory) and systems without a free
// inotify instance.
#pragma once

#include <chrono>

#include "lease/directory.h"

namespace innkeeper::lease {

class Watch {
 public:
  explicit Watch(const Directory& directory);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Returns true if a lease file was changed, closed by its writer or removed since the last call. A holder's
  // death appears as the close, a moment before its lock is gone. Blocks: up to `limit`, or until a signal.
  bool wait(std::chrono::milliseconds limit);

 private:
  bool drain();
  int fd_ = -1;
};

}  // namespace innkeeper::lease
