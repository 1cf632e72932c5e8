#include "base/descriptors.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace innkeeper {
namespace {

constexpr rlim_t kMostLooked = 65536;

std::vector<int> open_descriptors() {
  std::vector<int> found;
  DIR* const all = opendir("/proc/self/fd");
  if (all == nullptr) {  // Without /proc the descriptors are tried one by one.
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    for (int fd = 3; fd < static_cast<int>(std::min<rlim_t>(limit.rlim_cur, kMostLooked)); ++fd)
      if (fcntl(fd, F_GETFD) >= 0) found.push_back(fd);
    return found;
  }
  while (const dirent* entry = readdir(all)) {
    const int fd = std::atoi(entry->d_name);  // "." and ".." give 0.
    if (fd > 2 && fd != dirfd(all)) found.push_back(fd);
  }
  closedir(all);
  return found;
}

}  // namespace

std::vector<int> open_descriptors_but(const std::vector<int>& kept) {
  std::vector<int> found = open_descriptors();
  std::erase_if(found, [&kept](int fd) { return std::find(kept.begin(), kept.end(), fd) != kept.end(); });
  return found;
}

void open_nowhere(int first, int last) {
  const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nowhere < 0) return;
  for (int fd = first; fd <= last; ++fd) dup2(nowhere, fd);
  if (nowhere > last) close(nowhere);
}

}  // namespace innkeeper
