// Links between GPUs: NVLink by the remote end of each link, else the PCIe path.
#pragma once

#include <string>
#include <vector>

#include "telemetry/nvml.h"
#include "telemetry/snapshot.h"

namespace innkeeper::telemetry::nvml {

struct LinkEnd {
  Device device = nullptr;
  std::string bus_id;  // Bus id in the form of plain_bus_id().
};

// Returns gpus.size() squared links, row by row.
std::vector<Link> read_links(const Library& library, const std::vector<LinkEnd>& gpus);

}  // namespace innkeeper::telemetry::nvml
