#include <mntent.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string_view>

#include "base/disk_space.h"
#include "cli/doctor/checks.h"
#include "lease/container.h"
#include "lease/directory.h"
#include "lease/global_lock.h"
#include "lease/logout.h"
#include "lease/record.h"

namespace innkeeper::cli {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

bool exists(const std::string& path) {
  struct stat about {};
  return stat(path.c_str(), &about) == 0;
}

template <class Matches>
bool any_mount(const Matches& matches) {
  const std::unique_ptr<FILE, int (*)(FILE*)> mounts(setmntent("/proc/self/mounts", "r"), endmntent);
  while (const mntent* entry = mounts == nullptr ? nullptr : getmntent(mounts.get()))
    if (matches(*entry)) return true;
  return false;
}

bool hides_processes() {
  return geteuid() != 0 && any_mount([](const mntent& entry) {
           const std::string_view options = entry.mnt_opts;
           return std::string_view(entry.mnt_type) == "proc" && std::string_view(entry.mnt_dir) == "/proc" &&
                  options.find("hidepid=") != std::string_view::npos &&
                  options.find("hidepid=0") == std::string_view::npos &&
                  options.find("hidepid=off") == std::string_view::npos;
         });
}

bool inotify_works() {
  const int fd = inotify_init1(IN_CLOEXEC);
  if (fd < 0) return false;
  close(fd);
  return true;
}

// Returns the space that a default lease directory shares with other files.
Bytes shared_space(const std::string& path) {
  const std::vector<std::string> defaults = lease::default_directories();
  if (std::find(defaults.begin(), defaults.end(), path) == defaults.end()) return {};
  struct stat here {
  }, above{};
  struct statvfs system {};
  if (stat(path.c_str(), &here) != 0 || stat((path + "/..").c_str(), &above) != 0 ||
      statvfs(path.c_str(), &system) != 0 || here.st_dev != above.st_dev)
    return {};
  return Bytes(static_cast<int64_t>(system.f_blocks) * static_cast<int64_t>(system.f_frsize));
}

// Returns the free space if it does not suffice for a lease's file.
std::string why_full(const std::string& path) {
  struct statvfs about {};
  if (path.empty() || statvfs(path.c_str(), &about) != 0) return {};
  const bool has_files = about.f_favail > 0 || about.f_files == 0;
  const bool has_bytes = about.f_bavail * about.f_frsize >= 2 * lease::kSlotBytes;
  return has_files && has_bytes ? std::string() : space_left(path);
}

Status try_lock(int limit_ms) {
  const auto directory = lease::Directory::open_default();
  if (!directory.ok()) return Status::okay();  // The finding on the directory reports this.
  lease::GlobalLock lock;
  return lock.lock(*directory.value(), std::chrono::milliseconds(limit_ms));
}

}  // namespace

Patient examine(int lock_limit_ms) {
  using telemetry::Wanted;
  Patient patient;
  const auto begin = std::chrono::steady_clock::now();
  (void)telemetry::snapshot(Wanted::nothing);
  patient.start_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  patient.survey = look_around(Wanted::memory | Wanted::processes | Wanted::utilization);
  patient.lock = try_lock(lock_limit_ms);
  patient.processes_hidden = hides_processes();
  patient.container = lease::in_container();
  patient.directory_named = !variable("INNKEEPER_LEASE_DIR").empty();
  patient.directory_mounted = lease::is_from_outside(patient.survey.directory_path);
  if (const auto directory = lease::Directory::find_default(); directory.ok())
    patient.removed_at_logout = lease::removed_at_logout(*directory.value());
  patient.directory_full = why_full(patient.survey.directory_path);
  patient.shared_space = shared_space(patient.survey.directory_path);
  patient.watches_left = inotify_works();
  std::ifstream("/proc/sys/fs/protected_regular") >> patient.protected_regular;
  const std::string pipes = variable("CUDA_MPS_PIPE_DIRECTORY");
  patient.mps = exists((pipes.empty() ? "/tmp/nvidia-mps" : pipes) + "/control");
  patient.visible_list = variable("CUDA_VISIBLE_DEVICES");
  patient.visible_set = std::getenv("CUDA_VISIBLE_DEVICES") != nullptr;
  patient.device_order = variable("CUDA_DEVICE_ORDER");
  patient.outer_lease = variable("INNKEEPER_LEASE");
  patient.libraries = variable("INNKEEPER_LIBRARIES");
  return patient;
}

}  // namespace innkeeper::cli
