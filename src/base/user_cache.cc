#include "base/user_cache.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace innkeeper {

namespace fs = std::filesystem;

std::string user_cache() {
  // The XDG standard requires programs to ignore a relative path here.
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && fs::path(cache).is_absolute())
    return (fs::path(cache) / "innkeeper").string();
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return {};
  return (fs::path(home) / ".cache/innkeeper").string();
}

Status write_whole(const std::string& path, const std::string& text) {
  // The name contains no process number: processes of several namespaces, as in containers, may
  // share a directory.
  std::string draft = path + ".XXXXXX" + std::string(kDraftEnding);
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  const int made = mkostemps(draft.data(), static_cast<int>(kDraftEnding.size()), O_CLOEXEC);
  if (made < 0) return Status(Code::unavailable, "cannot write " + path + ": " + std::strerror(errno));
  std::ofstream file(draft);
  close(made);
  file << text;
  file.close();
  const bool written = file.good();
  if (written) fs::rename(draft, path, error);
  if (written && !error) return {};
  std::error_code ignored;
  fs::remove(draft, ignored);
  return Status(Code::unavailable, "cannot write " + path + (error ? ": " + error.message() : ""));
}

}  // namespace innkeeper
