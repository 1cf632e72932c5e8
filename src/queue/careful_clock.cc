#include "queue/careful_clock.h"

#include <algorithm>

#include "base/clock.h"
#include "base/lines.h"

namespace innkeeper::queue {
namespace {

// Setting: hash of the boot id at the last reading; 0: no reading yet.
constexpr const char* kBoot = "clock boot";
constexpr const char* kReading = "clock reading";  // Setting: the last reading, ns since 1970.
// Setting: the machine's monotonic clock at the last reading, ns.
constexpr const char* kAt = "clock machine";
// Setting: last reading of the previous boot, ns since 1970; 0: none.
constexpr const char* kBefore = "clock before";

}  // namespace

Result<int64_t> careful_now(Store& store, const std::string& boot_id) {
  int64_t last_boot = 0, last = 0, last_at = 0, before = 0;
  for (const auto& [name, value] :
       {std::pair{kBoot, &last_boot}, {kReading, &last}, {kAt, &last_at}, {kBefore, &before}}) {
    const Result<int64_t> read = store.setting(name, 0);
    if (!read.ok()) return read.status();
    *value = read.value();
  }
  const auto boot = static_cast<int64_t>(fnv1a(boot_id) >> 1U) | 1;
  const int64_t machine = machine_clock_ns();
  int64_t now = wall_clock_ns();
  if (boot == last_boot)
    now = std::min(now, last + std::max(int64_t{0}, machine - last_at));
  else
    before = last;
  IK_RETURN_IF_ERROR(store.set_all({{kBefore, before}, {kReading, now}, {kAt, machine}, {kBoot, boot}}));
  return before == 0 ? now : std::min(now, before + machine);
}

}  // namespace innkeeper::queue
