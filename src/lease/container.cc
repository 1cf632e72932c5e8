#include "lease/container.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/namespaces.h"

namespace innkeeper::lease {
namespace {

// A mount, as /proc/self/mountinfo lists it (proc_pid_mountinfo(5)).
struct Mount {
  std::string device;  // Device of the file system.
  std::string root;    // Directory of the file system that is mounted.
  std::string point;   // Mount point.
  std::string source;  // Source name that the mount reports.
};

bool covers(std::string_view point, std::string_view path) {
  return point == "/" ||
         (path.starts_with(point) && (path.size() == point.size() || path[point.size()] == '/'));
}

std::vector<Mount> mounts() {
  std::vector<Mount> found;
  std::ifstream file("/proc/self/mountinfo");
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string skipped;
    Mount& mount = found.emplace_back();
    words >> skipped >> skipped >> mount.device >> mount.root >> mount.point;
    while (words >> skipped && skipped != "-") {
    }
    words >> skipped >> mount.source;
  }
  return found;
}

// Returns the mount through which a path is seen: of two at one point the later one is on top.
Mount mount_of(const std::string& path, const std::vector<Mount>& all) {
  Mount found{"", "/", "/", ""};
  for (const Mount& mount : all)
    if (covers(mount.point, path) && mount.point.size() >= found.point.size()) found = mount;
  return found;
}

bool exists(const char* path) {
  struct stat about {};
  return stat(path, &about) == 0;
}

bool is_set(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

}  // namespace

bool in_container() {
  return exists("/.dockerenv") || exists("/run/.containerenv") || exists("/run/systemd/container") ||
         is_set("container") || is_set("KUBERNETES_SERVICE_HOST") || is_set("APPTAINER_CONTAINER") ||
         is_set("SINGULARITY_CONTAINER");
}

bool is_from_outside(const std::string& path) {
  const std::vector<Mount> all = mounts();
  const Mount mount = mount_of(path, all);
  if (mount.point == "/" || mount.device == mount_of("/", all).device) return false;
  if (mount.root.find("/kubernetes.io~empty-dir/") != std::string::npos) return false;
  // A directory of a file system of the machine, or a whole file system that was mounted just there.
  if (mount.root != "/" || mount.point == path) return true;
  // A tmpfs does not tell its owner, but /dev/shm belongs to the namespace of shared memory. A container
  // engine names the container's own one "shm".
  return mount.point == "/dev/shm" && mount.source != "shm" && ipc_is_the_machines();
}

std::string unseen_outside(const Directory& directory) {
  const std::string& path = directory.path();
  const std::vector<std::string> defaults = default_directories();
  const bool named = std::find(defaults.begin(), defaults.end(), path) == defaults.end();
  if (named || !in_container() || is_from_outside(path)) return {};
  return "nobody outside of this container sees the leases in " + path +
         "; start it with the machine's (docker run -v " + kSetUpDirectory + ":" + kSetUpDirectory +
         ", after innkeeper setup there), or set INNKEEPER_LEASE_DIR to another directory if no one outside "
         "uses "
         "its GPUs";
}

}  // namespace innkeeper::lease
