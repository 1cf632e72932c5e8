// Wakes who waits for something in the queue's folder: inotify on its wake file and on the life folder, and a
// timer where inotify is used up.
#pragma once

#include <chrono>

#include "queue/folder.h"

namespace innkeeper::queue {

class Watch {
 public:
  explicit Watch(const Folder& folder);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Until something has changed since the last call, `also` can be read (-1: none), or `limit`. True:
  // something has happened. Blocks.
  bool wait(std::chrono::milliseconds limit, int also = -1);

 private:
  int fd_ = -1;
};

}  // namespace innkeeper::queue
