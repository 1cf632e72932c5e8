#include "queue/watch.h"

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>

namespace innkeeper::queue {
namespace {
constexpr std::chrono::milliseconds kPoll{100};  // Polling period without inotify.
}

Watch::Watch(const QueueDirectory& directory) : fd_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
  if (fd_ < 0) return;
  const bool good =
      inotify_add_watch(fd_, directory.wake_file().c_str(), IN_ATTRIB) >= 0 &&
      inotify_add_watch(fd_, directory.life_directory().c_str(), IN_MODIFY | IN_CLOSE_WRITE) >= 0;
  if (good) return;
  close(fd_);
  fd_ = -1;
}

Watch::~Watch() {
  if (fd_ >= 0) close(fd_);
}

bool Watch::wait(std::chrono::milliseconds limit, int also) {
  if (fd_ < 0) limit = std::min(limit, kPoll);
  pollfd list[2] = {{fd_, POLLIN, 0}, {also, POLLIN, 0}};
  const int ready = poll(list, 2, static_cast<int>(limit.count()));
  if (fd_ < 0) return true;
  char events[4096];
  bool changed = false;
  while (read(fd_, events, sizeof events) > 0) changed = true;
  return changed || (ready > 0 && list[1].revents != 0);
}

}  // namespace innkeeper::queue
