// Wakes who waits in line when a lease may have ended: inotify on the lease folder, and a timer for what
// makes no event (processes without a lease that free memory) or where inotify is used up.
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

  // True: a lease file was changed, closed by its writer or removed since the last call. A holder's death
  // shows as the close, a moment before its lock is gone. Blocks: up to `limit`, or until a signal.
  bool wait(std::chrono::milliseconds limit);

 private:
  bool drain();
  int fd_ = -1;
};

}  // namespace innkeeper::lease
