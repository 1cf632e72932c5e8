// Wakes a thread that waits for a change in the queue's directory. It uses inotify on the wake file and on
// the life directory, or a timer if no inotify instance is available.
#pragma once

#include <chrono>

#include "queue/queue_directory.h"

namespace innkeeper::queue {

class Watch {
 public:
  explicit Watch(const QueueDirectory& directory);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Waits until a file has changed since the last call, `also` can be read (-1: none), or `limit` has passed.
  // Returns true if one of the first two happened. Blocks.
  bool wait(std::chrono::milliseconds limit, int also = -1);

 private:
  int fd_ = -1;
};

}  // namespace innkeeper::queue
