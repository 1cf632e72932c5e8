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
  for (const telemetry::Card& card : snapshot.cards) {
    GPU gpu;
    gpu.uuid = card.uuid;
    gpu.name = card.name;
    gpu.index = card.driver_index;
    if (card.power) {
      gpu.power = card.power->watts;
      gpu.power_limit = card.power->limit_watts;
    }
    if (card.temperature_c) gpu.temperature = *card.temperature_c;
    if (!card.mig) {
      set_memory(gpu, card.memory);
      if (card.utilization) gpu.utilization = card.utilization->compute_percent / 100.0;
      found.push_back(std::move(gpu));
      continue;
    }
    for (const telemetry::Instance& instance : card.instances) {
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

std::function<double(const Card&)> by_keys(const std::function<double(const GPU&)>& key) {
  std::map<std::string, double> keys;
  for (const GPU& gpu : gpus()) keys[gpu.uuid] = key(gpu);
  return [keys = std::move(keys)](const Card& card) {
    const auto found = keys.find(card.uuid);
    return found == keys.end() ? -std::numeric_limits<double>::max() : found->second;
  };
}

}  // namespace lease
}  // namespace innkeeper
