// The part of a snapshot that AMD SMI gives.
#include <algorithm>

#include "telemetry/amd_gpus.h"
#include "telemetry/amdsmi.h"
#include "telemetry/answers.h"
#include "telemetry/part.h"

namespace innkeeper::telemetry {

namespace {

// The library's handles, in its order: the GPUs of each socket.
struct Handles {
  std::vector<amdsmi::Device> devices;
  amdsmi::Code code = amdsmi::kSuccess;
  const char* question = "amdsmi_get_socket_handles";
};

// Reads a list from the library, which returns first its length and then its entries.
template <class Handle, class Ask>
amdsmi::Code read_handles(const Ask& ask_list, std::vector<Handle>& handles) {
  uint32_t count = 0;
  amdsmi::Code code = ask_list(&count, nullptr);
  if (code != amdsmi::kSuccess || count == 0) return code;
  handles.assign(std::min(count, kMostGpus), nullptr);
  count = static_cast<uint32_t>(handles.size());
  code = ask_list(&count, handles.data());
  handles.resize(code == amdsmi::kSuccess ? std::min<size_t>(count, handles.size()) : 0);
  std::erase(handles, nullptr);
  return code;
}

Handles read_handles(const amdsmi::Library& library) {
  Handles result;
  std::vector<amdsmi::Socket> sockets;
  result.code = read_handles<amdsmi::Socket>(
      [&](uint32_t* count, amdsmi::Socket* list) { return amdsmi::ask(library.sockets, count, list); },
      sockets);
  if (result.code != amdsmi::kSuccess) return result;
  for (const amdsmi::Socket socket : sockets) {
    std::vector<amdsmi::Device> devices;
    result.code = read_handles<amdsmi::Device>(
        [&](uint32_t* count, amdsmi::Device* list) {
          return amdsmi::ask(library.devices, socket, count, list);
        },
        devices);
    if (result.code == amdsmi::kNotInitialized) {
      result.question = "amdsmi_get_processor_handles";
      return result;
    }
    for (const amdsmi::Device device : devices) {
      int kind = amdsmi::kKindAmdGpu;
      const amdsmi::Code code = amdsmi::ask(library.kind, device, &kind);
      if (code == amdsmi::kSuccess && kind != amdsmi::kKindAmdGpu) continue;
      if (result.devices.size() < kMostGpus) result.devices.push_back(device);
    }
  }
  result.code = amdsmi::kSuccess;
  return result;
}

Driver read_driver(const amdsmi::Library& library, const Handles& handles) {
  Driver driver;
  const amdsmi::Version& number = library.number;
  driver.amdsmi_version = number.first == 0
                              ? "unknown"
                              : std::to_string(number.first) + "." + std::to_string(number.second) + "." +
                                    std::to_string(number.third);
  // The oldest version has the name as its first field.
  if (handles.devices.empty() || number.first <= amdsmi::kOldestVersion) return driver;
  amdsmi::Buffer info = {};
  if (amdsmi::ask(library.driver_info, handles.devices.front(), &info) == amdsmi::kSuccess) {
    constexpr size_t kText = 64;
    driver.amd_version = clean_text(info.bytes, kText);
  }
  return driver;
}

// Partitions of one GPU have one unique id, so ROCR cannot distinguish them: none of them is usable.
void lose_partitions(std::vector<amdsmi::Device>& devices, Part& part) {
  std::vector<Gpu> gpus;
  std::vector<amdsmi::Device> kept;
  for (size_t i = 0; i < part.gpus.size(); ++i) {
    Gpu& gpu = part.gpus[i];
    const auto is_same = [&](const Gpu& other) { return other.uuid == gpu.uuid; };
    if (std::count_if(part.gpus.begin(), part.gpus.end(), is_same) > 1) {
      part.lost.push_back({gpu.driver_index, gpu.uuid, gpu.bus_id,
                           "another GPU has the same UUID: a partitioned GPU cannot be named", false,
                           Vendor::amd});
    } else {
      kept.push_back(devices[i]);
      gpus.push_back(gpu);
    }
  }
  part.gpus = std::move(gpus);
  devices = std::move(kept);
  std::stable_sort(part.lost.begin(), part.lost.end(),
                   [](const LostGpu& a, const LostGpu& b) { return a.driver_index < b.driver_index; });
}

// Returns false if other code has stopped the library meanwhile.
bool read_gpus(const amdsmi::Library& library, const Handles& handles, Wanted wanted, Part& part) {
  std::vector<amdsmi::Device> devices;  // Handles in the order of part.gpus.
  for (size_t i = 0; i < handles.devices.size(); ++i) {
    Gpu gpu;
    gpu.vendor = Vendor::amd;
    gpu.driver_index = static_cast<int>(i);
    amdsmi::GpuReader reader(library, handles.devices[i]);
    const bool known = reader.read_identity(gpu);
    if (known) reader.read(wanted, gpu);
    if (reader.gone()) return false;
    if (!known || reader.lost()) {
      part.lost.push_back(
          {gpu.driver_index, gpu.uuid, gpu.bus_id, reader.why(), reader.forbidden(), Vendor::amd});
    } else {
      devices.push_back(handles.devices[i]);
      part.gpus.push_back(std::move(gpu));
    }
  }
  lose_partitions(devices, part);
  if (!has(wanted, Wanted::links)) return true;
  const size_t count = devices.size();
  part.links.resize(count * count);
  for (size_t a = 0; a < count; ++a) {
    for (size_t b = a + 1; b < count; ++b) {
      const Link link = amdsmi::read_link(library, devices[a], devices[b]);
      part.links[a * count + b] = part.links[b * count + a] = link;
    }
  }
  return true;
}

}  // namespace

Part read_amd(Wanted wanted) {
  return take_part(amdsmi::sessions, [wanted](const amdsmi::Library& library, Part& part) {
    const Handles handles = read_handles(library);
    const auto failed = [&](const char* question, amdsmi::Code code) {
      return Read{
          amdsmi::outcome_of(code) == Outcome::not_supported ? Outcome::error : amdsmi::outcome_of(code),
          amdsmi::describe(library, question, code), code == amdsmi::kNotInitialized};
    };
    if (handles.code != amdsmi::kSuccess) return failed(handles.question, handles.code);
    part.driver = read_driver(library, handles);
    if (!read_gpus(library, handles, wanted, part))
      return failed("amdsmi_get_gpu_device_bdf", amdsmi::kNotInitialized);
    return Read();
  });
}

void shut_down_amd() { amdsmi::sessions.end(); }

}  // namespace innkeeper::telemetry
