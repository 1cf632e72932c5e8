#include "base/namespaces.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>

namespace innkeeper {

namespace {

bool users_are_the_machines() {
  std::ifstream map("/proc/self/uid_map");
  uint64_t here = 0, there = 0, count = 0;
  // Without /proc: the root directory is root's, and appears as root's only if root has a number here.
  struct stat top {};
  if (!(map >> here >> there >> count)) return stat("/", &top) != 0 || top.st_uid == 0;
  return here == 0 && there == 0 && count == UINT32_MAX;
}

}  // namespace

std::optional<uid_t> unmapped_user() {
  if (users_are_the_machines()) return std::nullopt;
  std::ifstream file("/proc/sys/kernel/overflowuid");
  uid_t user = 0;
  return file >> user ? user : 65534;
}

bool proc_is_ours() {
  char text[24];
  const ssize_t length = readlink("/proc/self", text, sizeof text - 1);
  if (length <= 0) return false;
  text[length] = '\0';
  return std::atol(text) == getpid();
}

bool ipc_is_the_machines() {
  constexpr ino_t kFirst = 0xEFFFFFFF;  // PROC_IPC_INIT_INO of the kernel.
  struct stat about {};
  return stat("/proc/self/ns/ipc", &about) == 0 && about.st_ino == kFirst;
}

}  // namespace innkeeper
