// The simulated GPUs of INNKEEPER_NODES, for machines without a driver, so that choosing, leases and the
// queue can be tried anywhere. Each process has simulated memory of its own, so the snapshot shows it as
// unused. Only leases claim a part of it.
#include <cstdlib>
#include <string_view>

#include "config/machine.h"
#include "device/host.h"
#include "telemetry/part.h"

namespace innkeeper::telemetry {
namespace {

std::string_view said(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? std::string_view() : text;
}

}  // namespace

Part read_simulated(Wanted wanted) {
  Part part;
  const std::string_view nodes = said("INNKEEPER_NODES");
  // Returns before the query of the host's memory.
  if (nodes.find("sim") == std::string_view::npos) return part;
  const Result<MachineSpec> spec = parse_machine(nodes, said("INNKEEPER_SIM"), host_memory_limit());
  if (!spec.ok()) {
    part.text = spec.status().message();
    return part;
  }
  for (const NodeSpec& node : spec.value().nodes) {
    if (node.accelerator != kSim) continue;
    Gpu gpu;
    gpu.uuid = simulated_uuid(*node.index);
    gpu.name = "simulated " + std::string(node.sim.gpu.name);
    gpu.driver_index = *node.index;
    if (has(wanted, Wanted::memory)) {
      const Bytes all = *node.budget;
      gpu.memory = Memory{.total = all, .reserved = Bytes(0), .used = Bytes(0), .free = all};
    }
    if (has(wanted, Wanted::utilization))
      gpu.utilization = {Reading<Utilization>::none(Outcome::not_supported)};
    if (has(wanted, Wanted::power)) gpu.power = {Reading<Power>::none(Outcome::not_supported)};
    if (has(wanted, Wanted::temperature)) gpu.temperature_c = {Reading<int>::none(Outcome::not_supported)};
    if (has(wanted, Wanted::clocks)) gpu.clocks = {Reading<Clocks>::none(Outcome::not_supported)};
    if (has(wanted, Wanted::processes)) gpu.processes = std::vector<Process>();
    part.gpus.push_back(std::move(gpu));
  }
  return part;
}

}  // namespace innkeeper::telemetry
