#include "telemetry/condition.h"

#include <algorithm>

namespace innkeeper::telemetry {

Condition condition_of(const Snapshot& gpus, std::string_view uuid) {
  const Gpu* const gpu = gpus.find(uuid);
  if (gpu == nullptr) return {};
  Condition found;
  found.slowed = gpu->clocks && gpu->clocks->slowed;
  if (!gpu->processes) return found;
  const bool is_instance = gpus.find_instance(uuid) != nullptr;
  const auto has_it = [&](const Process& process) {
    return !is_instance || process.instance_uuid.empty() || process.instance_uuid == uuid;
  };
  found.shared = std::ranges::count_if(*gpu->processes, has_it) > 1;
  return found;
}

}  // namespace innkeeper::telemetry
