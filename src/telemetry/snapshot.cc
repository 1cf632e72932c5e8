#include "telemetry/snapshot.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "telemetry/part.h"

namespace innkeeper::telemetry {

namespace {

// Order of GPUs: by bus id; those without one come last, by vendor and the driver's index.
bool before(const Gpu& a, const Gpu& b) {
  const auto key = [](const Gpu& gpu) {
    return std::tuple<bool, const std::string&, Vendor, int>(gpu.bus_id.empty(), gpu.bus_id, gpu.vendor,
                                                             gpu.driver_index);
  };
  return key(a) < key(b);
}

// Origin of a GPU of the snapshot: its part, and its index there.
struct Source {
  size_t part = 0;
  size_t gpu = 0;
};

void merge_gpus(std::vector<Part>& parts, bool links, Snapshot& result) {
  std::vector<Source> sources;
  for (size_t i = 0; i < parts.size(); ++i) {
    for (size_t k = 0; k < parts[i].gpus.size(); ++k) sources.push_back({i, k});
    std::move(parts[i].lost.begin(), parts[i].lost.end(), std::back_inserter(result.lost));
  }
  const auto gpu_of = [&](const Source& source) -> Gpu& { return parts[source.part].gpus[source.gpu]; };
  std::sort(sources.begin(), sources.end(),
            [&](const Source& a, const Source& b) { return before(gpu_of(a), gpu_of(b)); });
  const size_t count = sources.size();
  if (links) result.links.resize(count * count);
  for (size_t a = 0; links && a < count; ++a) {
    for (size_t b = 0; b < count; ++b) {
      const Part& part = parts[sources[a].part];
      if (sources[a].part != sources[b].part) continue;  // No library reports a pair of two vendors' GPUs.
      const size_t place = sources[a].gpu * part.gpus.size() + sources[b].gpu;
      if (place < part.links.size()) result.links[a * count + b] = part.links[place];
    }
  }
  for (const Source& source : sources) result.gpus.push_back(std::move(gpu_of(source)));
}

// One vendor's driver is enough. Without any, the result reports the trouble of the vendors of which the
// machine has components, or the absence of both.
void merge_drivers(const Part& nvidia, const Part& amd, Snapshot& result) {
  for (const auto& [vendor, part] : {std::pair(Vendor::nvidia, &nvidia), std::pair(Vendor::amd, &amd)})
    if (part->outcome != Outcome::value) result.absent.push_back({vendor, part->trouble, part->text});
  if (result.absent.size() < 2) {
    Driver driver = nvidia.driver;
    driver.amd_version = amd.driver.amd_version;
    driver.amdsmi_version = amd.driver.amdsmi_version;
    result.driver = std::move(driver);
    return;
  }
  const auto is_here = [](const Part& part) { return part.trouble != Trouble::no_library; };
  const Part& first = is_here(nvidia) || !is_here(amd) ? nvidia : amd;
  const bool both = is_here(nvidia) == is_here(amd);
  result.trouble = first.trouble;
  result.driver = Reading<Driver>::none(first.outcome, both ? nvidia.text + "; " + amd.text : first.text);
}

}  // namespace

Snapshot snapshot(Wanted wanted) {
  Snapshot result;
  std::vector<Part> parts;
  parts.push_back(read_nvidia(wanted));
  parts.push_back(read_amd(wanted));
  merge_drivers(parts[0], parts[1], result);
  if (!result.driver.ok()) {
    parts.push_back(read_simulated(wanted));
    result.simulated = !parts.back().gpus.empty();
    if (const std::string& wrong = parts.back().text; !wrong.empty()) {
      result.trouble = Trouble::wrong_setting;
      result.driver = Reading<Driver>::none(result.driver.outcome(), wrong);
    }
  }
  merge_gpus(parts, has(wanted, Wanted::links), result);
  result.taken = std::chrono::steady_clock::now();
  return result;
}

void shut_down() {
  shut_down_nvidia();
  shut_down_amd();
}

Link Snapshot::link(size_t a, size_t b) const {
  const size_t place = a * gpus.size() + b;
  return a < gpus.size() && b < gpus.size() && place < links.size() ? links[place] : Link{};
}

const Gpu* Snapshot::find(std::string_view uuid) const {
  for (const Gpu& gpu : gpus) {
    if (gpu.uuid == uuid) return &gpu;
    for (const Instance& instance : gpu.instances) {
      if (instance.uuid == uuid) return &gpu;
    }
  }
  return nullptr;
}

const Instance* Snapshot::find_instance(std::string_view uuid) const {
  for (const Gpu& gpu : gpus) {
    for (const Instance& instance : gpu.instances) {
      if (instance.uuid == uuid) return &instance;
    }
  }
  return nullptr;
}

}  // namespace innkeeper::telemetry
