#include "lease/gpus.h"

#include <limits>
#include <map>
#include <utility>

#include "telemetry/snapshot.h"

namespace innkeeper {
namespace {

void set_memory(GPU& gpu, const telemetry::Reading<telemetry::Memory>& memory) {
  if (!memory) return;
  gpu.memory_total = memory->total.count();
  gpu.memory_free = memory->free.count();
  gpu.memory_reserved = memory->reserved.count();
}

}  // namespace

std::vector<GPU> gpus() {
  using telemetry::Wanted;
  const telemetry::Snapshot snapshot =
      telemetry::snapshot(Wanted::memory | Wanted::utilization | Wanted::power | Wanted::temperature);
  std::vector<GPU> found;
  for (const telemetry::Gpu& device : snapshot.gpus) {
    GPU gpu;
    gpu.uuid = device.uuid;
    gpu.name = device.name;
    gpu.index = device.driver_index;
    if (device.power) {
      gpu.power = device.power->watts;
      gpu.power_limit = device.power->limit_watts;
    }
    if (device.temperature_c) gpu.temperature = *device.temperature_c;
    if (!device.mig) {
      set_memory(gpu, device.memory);
      if (device.utilization) gpu.utilization = device.utilization->compute_percent / 100.0;
      found.push_back(std::move(gpu));
      continue;
    }
    for (const telemetry::Instance& instance : device.instances) {
      GPU part = gpu;
      part.uuid = instance.uuid;
      if (!instance.name.empty()) part.name = instance.name;
      set_memory(part, instance.memory);
      found.push_back(std::move(part));
    }
  }
  return found;
}

namespace lease {

std::function<double(const Gpu&)> by_keys(const std::function<double(const GPU&)>& key) {
  std::map<std::string, double> keys;
  for (const GPU& gpu : gpus()) keys[gpu.uuid] = key(gpu);
  return [keys = std::move(keys)](const Gpu& device) {
    const auto found = keys.find(device.uuid);
    return found == keys.end() ? -std::numeric_limits<double>::max() : found->second;
  };
}

}  // namespace lease
}  // namespace innkeeper
