#include "base/clock.h"

#include <time.h>

#include <fstream>
#include <string>

namespace innkeeper {
namespace {

int64_t read(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Returns the offset that this process's time namespace adds to the machine's clock (time_namespaces(7)).
int64_t added_by_namespace() {
  std::ifstream offsets("/proc/self/timens_offsets");  // Kernels without such namespaces lack this file.
  std::string clock;
  int64_t seconds = 0, nanoseconds = 0;
  while (offsets >> clock >> seconds >> nanoseconds)
    if (clock == "boottime" || clock == "7") return seconds * 1'000'000'000 + nanoseconds;
  return 0;
}

}  // namespace

int64_t machine_clock_ns() {
  static const int64_t added = added_by_namespace();  // A process never changes its own namespace.
  return read(CLOCK_BOOTTIME) - added;
}

int64_t wall_ahead_ns() { return wall_clock_ns() - machine_clock_ns(); }

int64_t wall_clock_ns() { return read(CLOCK_REALTIME) + wall_clock_error_ns.load(std::memory_order_relaxed); }

}  // namespace innkeeper
