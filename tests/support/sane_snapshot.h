// Invariants of a snapshot for any answers of the vendors' libraries. Returns the first violation, or an
// empty text.
#pragma once

#include <set>
#include <string>

#include "base/printable.h"
#include "telemetry/snapshot.h"
#include "telemetry/visible.h"

namespace innkeeper::test {

inline bool is_plain(const std::string& text) {
  return printable(text, SIZE_MAX) == text && text.size() <= 1600;
}

inline std::string wrong_in(const telemetry::Reading<telemetry::Memory>& memory) {
  if (!memory) return is_plain(memory.text()) ? "" : "a reason is not plain";
  if (memory->total <= Bytes(0)) return "no memory at all";
  if (memory->free < Bytes(0) || memory->used < Bytes(0) || memory->reserved < Bytes(0))
    return "less than none";
  if (memory->free + memory->used + memory->reserved != memory->total) return "parts that are not the whole";
  return "";
}

inline std::string wrong_in(const telemetry::Gpu& gpu) {
  if (gpu.uuid.empty() || !is_plain(gpu.name) || !is_plain(gpu.uuid)) return "no plain name";
  if (gpu.uuid.find_first_of(", \t") != std::string::npos) return "a UUID that would break a list";
  if (const std::string wrong = wrong_in(gpu.memory); !wrong.empty()) return wrong;
  std::set<std::string> seen;
  for (const telemetry::Instance& instance : gpu.instances) {
    if (!seen.insert(instance.uuid).second) return "two instances of one name";
    if (instance.uuid.rfind("MIG-", 0) != 0 && instance.uuid.rfind("GPU-", 0) != 0)
      return "an instance without a UUID";
    if (const std::string wrong = wrong_in(instance.memory); !wrong.empty()) return wrong;
  }
  if (gpu.utilization) {
    const auto [compute, memory] = *gpu.utilization;
    if (compute < 0 || compute > 100 || memory < 0 || memory > 100) return "more than all of it used";
  }
  if (gpu.power && (gpu.power->watts < 0 || gpu.power->watts > 100'000)) return "a power station";
  if (gpu.temperature_c && *gpu.temperature_c > 500) return "a furnace";
  if (gpu.processes)
    for (const telemetry::Process& process : *gpu.processes)
      if (process.pid <= 0 || process.used.value_or(Bytes(0)) < Bytes(0)) return "no process";
  return "";
}

inline std::string wrong_in(const telemetry::Snapshot& now) {
  if (now.gpus.size() + now.lost.size() > 512) return "more GPUs than there can be";
  std::set<std::string> seen;
  for (const telemetry::Gpu& gpu : now.gpus) {
    if (!seen.insert(gpu.uuid).second) return "two GPUs of one name";
    if (const std::string wrong = wrong_in(gpu); !wrong.empty()) return gpu.uuid + ": " + wrong;
  }
  for (const telemetry::LostGpu& lost : now.lost)
    if (!is_plain(lost.why) || lost.why.empty() || !is_plain(lost.uuid))
      return "a GPU that is lost without a reason";
  if (!now.driver && !is_plain(now.driver.text())) return "no plain reason";
  if (now.driver.ok() != (now.trouble == telemetry::Trouble::none)) return "trouble with a driver that works";
  if (!now.driver.ok() && !now.gpus.empty()) return "GPUs without a driver";
  if (!now.links.empty() && now.links.size() != now.gpus.size() * now.gpus.size()) return "links of no pair";
  for (const std::string& uuid : telemetry::resolve_visible(std::nullopt, "", now).uuids)
    if (now.find(uuid) == nullptr) return "what is visible is not there";
  return "";
}

}  // namespace innkeeper::test
