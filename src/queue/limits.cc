#include "queue/limits.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <fstream>

#include "base/lines.h"

namespace innkeeper::queue {
namespace {

constexpr int kNice = 20;  // Added to the nice value, so that every stored number is positive.

// Reads /proc, because umask() itself would change the mask for a moment in every thread.
mode_t own_umask() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    unsigned value = 0;
    if (line.starts_with("Umask:\t") && read_number(std::string_view(line).substr(7), value, 8)) return value;
  }
  return 022;
}

void set_soft(int resource, rlim_t soft) {
  struct rlimit limit {};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) return;
  limit.rlim_cur = std::min(soft, limit.rlim_max);  // RLIM_INFINITY is the largest value.
  (void)setrlimit(static_cast<__rlimit_resource_t>(resource), &limit);
}

}  // namespace

std::string own_limits() {
  errno = 0;
  const int nice = getpriority(PRIO_PROCESS, 0);
  std::string text = std::to_string(own_umask()) + " " + std::to_string((errno == 0 ? nice : 0) + kNice);
  for (int resource = 0; resource < RLIM_NLIMITS; ++resource) {
    struct rlimit limit {};
    (void)getrlimit(static_cast<__rlimit_resource_t>(resource), &limit);
    text += " " + std::to_string(limit.rlim_cur);
  }
  return text;
}

void take_limits(std::string_view text) {
  std::array<uint64_t, 2 + RLIM_NLIMITS> numbers{};
  for (uint64_t& number : numbers)
    if (!read_number(cut(text, ' '), number)) return;
  if (!text.empty() || numbers[0] > 0777 || numbers[1] > 2 * kNice) return;
  umask(static_cast<mode_t>(numbers[0]));
  (void)setpriority(PRIO_PROCESS, 0, static_cast<int>(numbers[1]) - kNice);
  for (int resource = 0; resource < RLIM_NLIMITS; ++resource) set_soft(resource, numbers[2 + resource]);
}

void raise_limits() {
  for (const int resource : {RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_AS, RLIMIT_DATA, RLIMIT_NOFILE})
    set_soft(resource, RLIM_INFINITY);
}

}  // namespace innkeeper::queue
