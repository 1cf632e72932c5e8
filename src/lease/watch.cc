#include "lease/watch.h"

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <string>

namespace innkeeper::lease {

Watch::Watch(const Directory& directory) : fd_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
  const std::string path = "/proc/self/fd/" + std::to_string(directory.fd());
  if (fd_ >= 0 && inotify_add_watch(fd_, path.c_str(), IN_CLOSE_WRITE | IN_DELETE | IN_MODIFY) >= 0) return;
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Watch::~Watch() {
  if (fd_ >= 0) ::close(fd_);
}

// Returns whether events of lease files have arrived. Events of drafts, which every grant
// makes, do not count.
bool Watch::drain() {
  alignas(inotify_event) char buffer[16384];
  bool lease = false;
  for (;;) {
    const ssize_t length = read(fd_, buffer, sizeof buffer);
    if (length <= 0) return lease;
    for (ssize_t at = 0; at < length;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
      lease = lease || (event->mask & IN_Q_OVERFLOW) != 0 || (event->len > 0 && event->name[0] == 'l');
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    }
  }
}

bool Watch::wait(std::chrono::milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  for (;;) {
    if (fd_ >= 0 && drain()) return true;
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    if (left <= 0) return false;
    pollfd wanted{fd_, POLLIN, 0};  // poll() skips a negative descriptor and then only waits for the time.
    if (poll(&wanted, 1, static_cast<int>(left)) < 0) return false;
  }
}

}  // namespace innkeeper::lease
