#include "lease/from_snapshot.h"

#include <utility>

#include "lease/process.h"

namespace innkeeper::lease {
namespace {

void set_memory(Gpu& gpu, const telemetry::Reading<telemetry::Memory>& memory) {
  if (!memory) return;
  gpu.total = memory->total;
  gpu.reserved = memory->reserved;
  gpu.free = memory->free;
  gpu.unified = memory->unified;
}

// Sets the processes of the whole GPU or of one instance. A process of unknown size makes all unknown: its
// lease would look as if it had allocated no memory.
void set_processes(Gpu& gpu, const telemetry::Gpu& source, const std::string& instance) {
  if (!source.processes) return;
  gpu.processes_known = true;
  for (const telemetry::Process& process : *source.processes) {
    if (process.instance_uuid != instance) continue;
    if (!process.used) {
      gpu.processes_known = false;
      continue;
    }
    gpu.processes.push_back({*process.used, process_line(process.pid)});
  }
}

// Converts telemetry::better to a number: more NVLinks first, then the shorter path.
double goodness(const telemetry::Link& link) {
  constexpr auto kWorst = static_cast<int>(telemetry::Path::unknown);
  return 100.0 * link.nvlinks + (kWorst - static_cast<int>(link.path));
}

}  // namespace

telemetry::Wanted wanted_for(const Request& request) {
  using telemetry::Wanted;
  Wanted wanted = Wanted::memory | Wanted::processes;
  if (request.by == By::power || request.key) wanted = wanted | Wanted::power;
  if (request.by == By::utilization || request.key) wanted = wanted | Wanted::utilization;
  if (request.count > 1) wanted = wanted | Wanted::links;
  return wanted;
}

Machine from_snapshot(const telemetry::Snapshot& snapshot) {
  Machine machine;
  std::vector<size_t> parents;  // Parent GPU, in the snapshot, of each of machine.gpus.
  const auto add = [&](size_t parent, Gpu gpu) {
    parents.push_back(parent);
    machine.gpus.push_back(std::move(gpu));
  };
  for (size_t i = 0; i < snapshot.gpus.size(); ++i) {
    const telemetry::Gpu& source = snapshot.gpus[i];
    Gpu gpu;
    gpu.vendor = static_cast<int>(source.vendor);
    if (source.power && source.power->limit_watts && *source.power->limit_watts > 0)
      gpu.power_ratio = source.power->watts / *source.power->limit_watts;
    if (source.utilization) gpu.utilization = source.utilization->compute_percent / 100.0;
    if (!source.mig) {
      gpu.uuid = source.uuid;
      set_memory(gpu, source.memory);
      set_processes(gpu, source, "");
      add(i, std::move(gpu));
      continue;
    }
    for (const telemetry::Instance& instance : source.instances) {
      Gpu part;
      part.uuid = instance.uuid;
      part.vendor = gpu.vendor;
      part.power_ratio = gpu.power_ratio;
      set_memory(part, instance.memory);
      set_processes(part, source, instance.uuid);
      add(i, std::move(part));
    }
  }
  const size_t count = snapshot.gpus.size();
  if (snapshot.links.size() != count * count) return machine;
  for (const size_t a : parents)
    for (const size_t b : parents) machine.links.push_back(goodness(snapshot.links[a * count + b]));
  return machine;
}

}  // namespace innkeeper::lease
