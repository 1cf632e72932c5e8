#include "base/user_cache.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace innkeeper {

namespace fs = std::filesystem;

std::string user_cache() {
  // The standard says that a relative path there is to be ignored.
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && fs::path(cache).is_absolute())
    return (fs::path(cache) / "innkeeper").string();
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return {};
  return (fs::path(home) / ".cache/innkeeper").string();
}

Status write_whole(const std::string& path, const std::string& text) {
  const std::string draft = path + "." + std::to_string(getpid()) + ".new";
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  std::ofstream file(draft);
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
