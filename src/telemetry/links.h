// How cards reach each other: NVLink by what is at the other end of each link, else what PCIe offers.
#pragma once

#include <string>
#include <vector>

#include "telemetry/nvml.h"
#include "telemetry/snapshot.h"

namespace innkeeper::telemetry::nvml {

struct LinkEnd {
  Device device = nullptr;
  std::string bus_id;  // as plain_bus_id() writes it
};

// cards.size() squared, row by row.
std::vector<Link> read_links(const Library& library, const std::vector<LinkEnd>& cards);

}  // namespace innkeeper::telemetry::nvml
