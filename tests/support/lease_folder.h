// A lease folder of a test's own, and machines of plain cards.
#pragma once

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>

#include "lease/arbiter.h"

namespace innkeeper::test {

// Removed with everything in it.
class LeaseFolder {
 public:
  LeaseFolder() {
    std::string path =
        std::filesystem::exists("/dev/shm") ? "/dev/shm/lease-test.XXXXXX" : "/tmp/lease-test.XXXXXX";
    outer_ = mkdtemp(path.data());
    std::filesystem::permissions(outer_, std::filesystem::perms::all);
    directory_ = lease::Directory::open(outer_ + "/leases").value();
  }
  ~LeaseFolder() {
    if (getpid() == owner_) std::filesystem::remove_all(outer_);
  }
  LeaseFolder(const LeaseFolder&) = delete;
  LeaseFolder& operator=(const LeaseFolder&) = delete;

  const std::string& path() const { return directory_->path(); }
  const std::shared_ptr<const lease::Directory>& directory() const { return directory_; }
  lease::Arbiter arbiter() const { return lease::Arbiter(directory_); }
  // Besides the lock.
  int files() const {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path()))
      if (entry.path().filename() != lease::kLockName) ++count;
    return count;
  }

 private:
  const pid_t owner_ = getpid();
  std::string outer_;
  std::shared_ptr<const lease::Directory> directory_;
};

inline std::string card_name(int index) { return "GPU-" + std::to_string(1000 + index); }

// Cards that nobody uses.
inline lease::Machine idle_machine(int cards, Bytes each = GiB(80)) {
  lease::Machine machine;
  for (int i = 0; i < cards; ++i) {
    lease::Card card;
    card.uuid = card_name(i);
    card.total = each;
    card.free = each;
    card.processes_known = true;
    machine.cards.push_back(card);
  }
  return machine;
}

inline lease::Request share(Bytes memory, int count = 1) {
  lease::Request request;
  request.memory = memory;
  request.count = count;
  return request;
}

inline lease::Request whole(int count = 1) {
  lease::Request request;
  request.count = count;
  return request;
}

// Runs `body` in a forked child, and gives its exit status (128 and more: killed by a signal).
inline int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
inline pid_t in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  return child;
}

}  // namespace innkeeper::test
