#include "telemetry/links.h"

#include <algorithm>
#include <tuple>

#include "telemetry/answers.h"

namespace innkeeper::telemetry {

const char* to_string(Path path) {
  switch (path) {
    case Path::nvlink: return "NVLink";
    case Path::xgmi: return "xGMI";
    case Path::board: return "one board";
    case Path::pci_switch: return "one PCIe switch";
    case Path::pci_switches: return "several PCIe switches";
    case Path::host_bridge: return "host bridge";
    case Path::numa_node: return "NUMA node";
    case Path::machine: return "across processors";
    case Path::unknown: break;
  }
  return "unknown";
}

bool better(const Link& a, const Link& b) {
  return std::tuple(-a.nvlinks, a.path) < std::tuple(-b.nvlinks, b.path);
}

namespace nvml {

namespace {

// Remote ends of one GPU's active NVLinks.
struct Nvlinks {
  std::vector<int> to_gpu;  // Number of links to each other GPU, by its index.
  int to_switch = 0;        // Number of links to a switch, which joins all GPUs that are linked to it.
};

Nvlinks read_nvlinks(const Library& library, const std::vector<LinkEnd>& gpus, size_t index) {
  const Device device = gpus[index].device;
  Nvlinks found;
  found.to_gpu.resize(gpus.size());
  for (uint32_t i = 0; i < kMaxNvlinks; ++i) {
    uint32_t active = 0;
    const Code code = ask(library.nvlink_state, device, i, &active);
    // There is no such link, so there are no more; or the GPU has no NVLink at all.
    if (code == kInvalidArgument || outcome_of(code) == Outcome::not_supported) break;
    if (code != kSuccess || active != 1) continue;
    int kind = kRemoteGpu;
    if (ask(library.nvlink_remote_kind, device, i, &kind) == kSuccess && kind == kRemoteSwitch) {
      ++found.to_switch;
      continue;
    }
    Pci3 remote = {};
    if (ask(library.nvlink_remote, device, i, &remote) != kSuccess) continue;
    const std::string bus_id = plain_bus_id(clean_text(remote.bus_id, sizeof remote.bus_id));
    for (size_t other = 0; other < gpus.size(); ++other) {
      if (other != index && !bus_id.empty() && gpus[other].bus_id == bus_id) ++found.to_gpu[other];
    }
  }
  return found;
}

Path link_path(Code code, int level) {
  if (code != kSuccess) return Path::unknown;
  switch (level) {
    case kTopologyInternal: return Path::board;
    case kTopologySingle: return Path::pci_switch;
    case kTopologyMultiple: return Path::pci_switches;
    case kTopologyHostBridge: return Path::host_bridge;
    case kTopologyNode: return Path::numa_node;
    case kTopologySystem: return Path::machine;
    default: return Path::unknown;
  }
}

}  // namespace

std::vector<Link> read_links(const Library& library, const std::vector<LinkEnd>& gpus) {
  const size_t count = gpus.size();
  std::vector<Link> links(count * count);
  if (count < 2) return links;
  std::vector<Nvlinks> nvlinks;
  for (size_t i = 0; i < count; ++i) nvlinks.push_back(read_nvlinks(library, gpus, i));
  for (size_t a = 0; a < count; ++a) {
    for (size_t b = a + 1; b < count; ++b) {
      Link& link = links[a * count + b];
      // Both ends report the links; one end may be unable to.
      link.nvlinks = std::max(nvlinks[a].to_gpu[b], nvlinks[b].to_gpu[a]) +
                     std::min(nvlinks[a].to_switch, nvlinks[b].to_switch);
      int level = 0;
      if (link.nvlinks > 0) {
        link.path = Path::nvlink;
      } else {
        const Code code = ask(library.ancestor, gpus[a].device, gpus[b].device, &level);
        link.path = link_path(code, level);
      }
      links[b * count + a] = link;
    }
  }
  return links;
}

}  // namespace nvml
}  // namespace innkeeper::telemetry
