#include "base/disk_space.h"

#include <sys/statvfs.h>

#include "base/types.h"

namespace innkeeper {

std::string space_left(const std::string& path) {
  struct statvfs about {};
  if (statvfs(path.c_str(), &about) != 0) return "";
  if (about.f_bavail > 0 && about.f_favail == 0 && about.f_files > 0)
    return " (0 of " + std::to_string(about.f_files) + " files free)";
  const auto bytes = [&](fsblkcnt_t blocks) {
    return to_string(Bytes(static_cast<int64_t>(blocks) * static_cast<int64_t>(about.f_frsize)));
  };
  return " (" + bytes(about.f_bavail) + " free of " + bytes(about.f_blocks) + ")";
}

}  // namespace innkeeper
