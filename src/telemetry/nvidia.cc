// The part of a snapshot that NVML gives.
#include <algorithm>
#include <array>

#include "telemetry/answers.h"
#include "telemetry/gpus.h"
#include "telemetry/links.h"
#include "telemetry/nvml.h"
#include "telemetry/part.h"

namespace innkeeper::telemetry {

namespace {

std::string system_text(nvml::Code (*function)(char*, uint32_t)) {
  std::array<char, nvml::kTextSize> buffer = {};
  if (nvml::ask(function, buffer.data(), nvml::kTextSize) != nvml::kSuccess) return {};
  return clean_text(buffer.data(), buffer.size());
}

Driver read_driver(const nvml::Library& library) {
  Driver driver;
  driver.version = system_text(library.driver_version);
  driver.nvml_version = system_text(library.nvml_version);
  int cuda = 0;
  nvml::Code code = nvml::ask(library.cuda_version_2, &cuda);
  if (code != nvml::kSuccess) code = nvml::ask(library.cuda_version_1, &cuda);
  if (code == nvml::kSuccess && cuda > 0 && cuda < 1'000'000) {
    driver.cuda_major = cuda / 1000;
    driver.cuda_minor = cuda % 1000 / 10;
  }
  return driver;
}

// Reads all GPUs into `part`. kUninitialized: other code in this process has shut the library down.
nvml::Code read_all(const nvml::Library& library, Wanted wanted, Part& part) {
  uint32_t count = 0;
  if (const nvml::Code code = nvml::ask(library.count, &count); code != nvml::kSuccess) return code;
  Driver driver = read_driver(library);
  const bool avoid_3 = nvml::third_list_is_broken(driver.version);
  part.driver = std::move(driver);
  std::vector<nvml::LinkEnd> ends;  // Ends in the order of part.gpus.
  for (uint32_t i = 0; i < std::min(count, kMostGpus); ++i) {
    Gpu gpu;
    gpu.driver_index = static_cast<int>(i);
    const auto lose = [&](std::string why, bool forbidden = false) {
      part.lost.push_back(
          {gpu.driver_index, gpu.uuid, gpu.bus_id, std::move(why), forbidden, Vendor::nvidia});
    };
    // Handles are read again each time: the handle of a GPU that was reset is stale.
    nvml::Device device = nullptr;
    if (const nvml::Code code = nvml::ask(library.handle, i, &device); code != nvml::kSuccess) {
      // Distinguishes a failure of the whole library from one of this GPU's driver.
      uint32_t again = 0;
      if (code == nvml::kUninitialized && nvml::ask(library.count, &again) != nvml::kSuccess) return code;
      lose(nvml::describe(library, "nvmlDeviceGetHandleByIndex_v2", code), code == nvml::kNoPermission);
      continue;
    }
    nvml::GpuReader reader(library, device);
    const bool known = reader.read_identity(gpu);
    if (known) reader.read(wanted, avoid_3, gpu);
    if (!known || reader.lost()) {
      lose(reader.why());
    } else if (std::any_of(part.gpus.begin(), part.gpus.end(),
                           [&](const Gpu& other) { return other.uuid == gpu.uuid; })) {
      lose("another GPU has the same UUID");
    } else {
      ends.push_back({device, gpu.bus_id});
      part.gpus.push_back(std::move(gpu));
    }
  }
  if (has(wanted, Wanted::links)) part.links = nvml::read_links(library, ends);
  return nvml::kSuccess;
}

}  // namespace

Part read_nvidia(Wanted wanted) {
  return take_part(nvml::sessions, [wanted](const nvml::Library& library, Part& part) {
    const nvml::Code code = read_all(library, wanted, part);
    if (code == nvml::kSuccess) return Read();
    return Read{nvml::outcome_of(code), nvml::describe(library, "nvmlDeviceGetCount_v2", code),
                code == nvml::kUninitialized};
  });
}

void shut_down_nvidia() { nvml::sessions.end(); }

}  // namespace innkeeper::telemetry
