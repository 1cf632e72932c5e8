// Parts of a snapshot for tests of visible devices.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "telemetry/snapshot.h"

namespace innkeeper::test {

inline telemetry::Instance instance(std::string uuid, int gpu_instance, int compute_instance) {
  telemetry::Instance made;
  made.uuid = std::move(uuid);
  made.gpu_instance = gpu_instance;
  made.compute_instance = compute_instance;
  return made;
}

// A GPU, in MIG mode if it has instances.
inline telemetry::Gpu gpu(std::string uuid, const std::string& bus,
                          std::vector<telemetry::Instance> instances = {}) {
  telemetry::Gpu made;
  made.uuid = std::move(uuid);
  made.bus_id = "00000000:" + bus + ":00.0";
  made.name = "NVIDIA A100";
  made.mig = !instances.empty();
  made.instances = std::move(instances);
  return made;
}

}  // namespace innkeeper::test
