#include "board/reader.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "lease/live_file.h"
#include "lease/record.h"

namespace innkeeper::board {
namespace {

// Calls `look(descriptor, name, its stat)` for each regular file with a publisher's name.
void each_file(const lease::Directory& directory,
               const std::function<void(int, const char*, const struct stat&)>& look) {
  const int directory_fd = openat(directory.fd(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* names = directory_fd < 0 ? nullptr : fdopendir(directory_fd);
  if (names == nullptr) {
    if (directory_fd >= 0) ::close(directory_fd);
    return;
  }
  while (const dirent* entry = readdir(names)) {
    if (entry->d_name[0] != 'r' || !lease::valid_id(entry->d_name + 1)) continue;
    const int fd = openat(directory.fd(), entry->d_name, lease::kReadFlags);
    if (fd < 0) continue;
    struct stat about {};
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode)) look(fd, entry->d_name, about);
    ::close(fd);
  }
  closedir(names);
}

}  // namespace

std::vector<Shown> read(const lease::Directory& directory) {
  std::vector<Shown> all;
  std::unordered_map<uid_t, int> files;
  each_file(directory, [&](int fd, const char*, const struct stat& about) {
    if (++files[about.st_uid] > kMaxFilesPerUser || !lease::write_locked(fd).value_or(false)) return;
    // A reader may read in the middle of a write; the write is over at the second attempt.
    for (int attempt = 0; attempt < 2; ++attempt) {
      std::string text(kFileBytes, '\0');
      const ssize_t length = pread(fd, text.data(), text.size(), 0);
      text.resize(length > 0 ? static_cast<size_t>(length) : 0);
      if (std::optional<Record> record = decode(text)) {
        all.push_back({about.st_uid, *std::move(record)});
        return;
      }
    }
  });
  std::stable_sort(all.begin(), all.end(),
                   [](const Shown& a, const Shown& b) { return a.record.pid < b.record.pid; });
  return all;
}

void reap(const lease::Directory& directory) {
  const uid_t user = geteuid();
  each_file(directory, [&](int fd, const char* name, const struct stat& about) {
    if (about.st_uid == user && !lease::write_locked(fd).value_or(true)) unlinkat(directory.fd(), name, 0);
  });
}

}  // namespace innkeeper::board
