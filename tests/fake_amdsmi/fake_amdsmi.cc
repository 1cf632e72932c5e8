// A library with the part of AMD SMI's C interface that innkeeper calls; its script
// (tests/fake_nvml/script.h) decides the answers, in the layouts of the version that the script names. Like
// the real one of ROCm 6 it does not count starts, so that stopping it once ends it for all. Stricter than
// the real one: a child of fork() must restart it.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "fake_nvml/call.h"
#include "telemetry/amdsmi_abi.h"

#define FAKE_API extern "C" __attribute__((visibility("default")))

namespace amdsmi = innkeeper::telemetry::amdsmi;
using amdsmi::Code;

namespace {

using fake_nvml::answered;
using fake_nvml::BasicCall;

fake_nvml::Stage stage("INNKEEPER_FAKE_AMDSMI", amdsmi::kNotInitialized);

constexpr uintptr_t kSocketMark = 2;
constexpr uintptr_t kDeviceMark = 1;

// Each GPU is in a socket of its own.
template <class Handle>
Handle handle_of(uintptr_t generation, size_t gpu, uintptr_t mark) {
  return reinterpret_cast<Handle>((generation << 24) | (gpu << 12) | mark);
}

class Call : public BasicCall {
 public:
  explicit Call(const char* function) : BasicCall(stage, function) {
    if (started()) spoil();
  }
  Call(const char* function, const void* handle, uintptr_t mark = kDeviceMark) : BasicCall(stage, function) {
    if (!started()) return;
    const auto number = reinterpret_cast<uintptr_t>(handle);
    gpu_ = (number >> 12) & 0xFFF;
    if (gpu_ >= script().gpus.size() || handle != handle_of<void*>(generation(), gpu_, mark)) {
      code_ = amdsmi::kNotFound;
      return;
    }
    if (device().lost && mark == kDeviceMark) code_ = amdsmi::kNotFound;
    follow(device().behaviour, function);
    spoil();
  }

  const fake_nvml::Device& device() const { return script().gpus[gpu_]; }
  size_t gpu_index() const { return gpu_; }
  uint32_t version() const { return script().library[0]; }

 private:
  size_t gpu_ = 0;
};

template <class T>
Code write_number(Call& call, const std::optional<T>& number, T* place) {
  if (!number) return amdsmi::kNotSupported;
  *place = *number;
  return call.answer(place, sizeof *place);
}

// Text at the beginning of a struct, in a field of `length`.
Code write_text(Call& call, const std::string& text, void* place, size_t length) {
  std::memset(place, 0, length);
  std::memcpy(place, text.data(), std::min(text.size(), length - 1));
  return call.answer(place, length, true);
}

// Like the library: writes only the count if the caller passes no array.
template <class Handle>
Code write_handles(Call& call, uint32_t* count, Handle* handles, const std::vector<Handle>& all) {
  if (handles == nullptr) {
    *count = static_cast<uint32_t>(all.size());
    return call.answer(count, sizeof *count);
  }
  *count = std::min(*count, static_cast<uint32_t>(all.size()));
  std::copy_n(all.begin(), *count, handles);
  if (call.garbage() && *count > 0) call.answer(handles, sizeof(Handle));
  return call.answer(count, sizeof *count);
}

template <class Entry>
Code write_processes(Call& call, uint32_t* count, Entry* list) {
  const auto& processes = call.device().processes;
  const uint32_t capacity = *count;
  *count = static_cast<uint32_t>(processes.size());
  if (capacity == 0 || processes.empty()) return amdsmi::kSuccess;
  for (uint32_t i = 0; i < std::min(capacity, *count); ++i) {
    if constexpr (std::is_same_v<Entry, uint32_t>) {
      list[i] = processes[i].pid;
    } else {
      Entry entry = {};
      std::snprintf(entry.name, sizeof entry.name, "program");
      entry.pid = processes[i].pid;
      // An unknown value is 0.
      entry.vram = entry.memory = processes[i].used == ~uint64_t{0} ? 0 : processes[i].used;
      list[i] = entry;
    }
  }
  if (call.garbage()) {
    call.answer(list, sizeof(Entry) * capacity);
    call.answer(count, sizeof *count);
    return call.draw() % 2 == 0 ? amdsmi::kSuccess : amdsmi::kOutOfResources;
  }
  return capacity >= processes.size() ? amdsmi::kSuccess : amdsmi::kOutOfResources;
}

}  // namespace

FAKE_API Code amdsmi_init(uint64_t flags) {
  if (flags != amdsmi::kInitGpus) return amdsmi::kInvalidArgument;
  stage.start();
  const Call call(__func__);
  if (call.code() != amdsmi::kSuccess) stage.stop(true);
  return call.code();
}

FAKE_API Code amdsmi_shut_down() {
  const Call call(__func__);
  stage.stop(true);
  return amdsmi::kSuccess;
}

FAKE_API Code amdsmi_status_code_to_string(Code code, const char** text) {
  switch (code) {
    case amdsmi::kNoPermission: *text = "Permission Denied"; break;
    case amdsmi::kNotFound: *text = "Device Not found"; break;
    case amdsmi::kInputOutput: *text = "An I/O Error"; break;
    default: *text = "Unknown Error";
  }
  return code % 7 == 6 ? amdsmi::kInvalidArgument : amdsmi::kSuccess;
}

FAKE_API Code amdsmi_get_lib_version(amdsmi::Version* version) {
  Call call(__func__);
  if (call.code() != amdsmi::kSuccess) return call.code();
  const auto& number = call.script().library;
  *version = {number[0], number[1], number[2], number[3], "fake"};
  return amdsmi::kSuccess;
}

FAKE_API Code amdsmi_get_socket_handles(uint32_t* count, amdsmi::Socket* sockets) {
  if (sockets == nullptr) stage.follow_script();
  Call call(__func__);
  if (call.code() != amdsmi::kSuccess) return call.code();
  std::vector<amdsmi::Socket> all;
  for (size_t i = 0; i < call.script().gpus.size(); ++i)
    all.push_back(handle_of<amdsmi::Socket>(call.generation(), i, kSocketMark));
  return write_handles(call, count, sockets, all);
}

FAKE_API Code amdsmi_get_processor_handles(amdsmi::Socket socket, uint32_t* count, amdsmi::Device* devices) {
  return answered(Call(__func__, socket, kSocketMark), [&](Call& call) {
    return write_handles(call, count, devices,
                         {handle_of<amdsmi::Device>(call.generation(), call.gpu_index(), kDeviceMark)});
  });
}

FAKE_API Code amdsmi_get_processor_type(amdsmi::Device device, int* kind) {
  const Call call(__func__, device);
  *kind = amdsmi::kKindAmdGpu;
  return call.code();
}

FAKE_API Code amdsmi_get_gpu_device_bdf(amdsmi::Device device, amdsmi::Place* place) {
  Call call(__func__, device);
  if (call.code() != amdsmi::kSuccess) return call.code();
  unsigned domain = 0, bus = 0, slot = 0, function = 0;
  if (std::sscanf(call.device().bus_id.c_str(), "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4)
    return amdsmi::kNotSupported;
  *place = uint64_t{domain} << 16 | bus << 8 | slot << 3 | function;
  return call.answer(place, sizeof *place);
}

FAKE_API Code amdsmi_get_gpu_device_uuid(amdsmi::Device device, uint32_t* length, char* text) {
  Call call(__func__, device);
  if (call.code() != amdsmi::kSuccess) return call.code();
  if (*length < amdsmi::kUuidSize) return amdsmi::kInvalidArgument;
  if (call.device().uuid == "none") return amdsmi::kNotSupported;
  const uint64_t id = std::strtoull(call.device().uuid.c_str(), nullptr, 16);
  std::snprintf(text, amdsmi::kUuidSize, "%02xff74a1-0000-1000-80%02x-%04x%08x",
                static_cast<unsigned>(id >> 56), static_cast<unsigned>(id >> 48 & 0xFF),
                static_cast<unsigned>(id >> 32 & 0xFFFF), static_cast<unsigned>(id & 0xFFFFFFFF));
  return call.answer(text, amdsmi::kUuidSize, true);
}

FAKE_API Code amdsmi_get_gpu_asic_info(amdsmi::Device device, char* info) {
  return answered(Call(__func__, device), [&](Call& call) {
    return write_text(call, call.device().name, info, call.version() < 25 ? 64 : 256);
  });
}

FAKE_API Code amdsmi_get_gpu_driver_info(amdsmi::Device device, char* info) {
  return answered(Call(__func__, device), [&](Call& call) {
    return write_text(call, call.version() < 24 ? "amdgpu" : call.script().driver, info, 64);
  });
}

FAKE_API Code amdsmi_get_gpu_kfd_info(amdsmi::Device device, amdsmi::KfdInfo* info) {
  Call call(__func__, device);
  if (call.code() != amdsmi::kSuccess) return call.code();
  *info = {};
  return write_number(call, call.device().node, &info->node);
}

FAKE_API Code amdsmi_get_gpu_memory_total(amdsmi::Device device, int kind, uint64_t* total) {
  Call call(__func__, device);
  if (call.code() != amdsmi::kSuccess) return call.code();
  if (!call.device().memory || kind != amdsmi::kMemoryVram) return amdsmi::kNotSupported;
  return write_number(call, std::optional(call.device().memory->total), total);
}

FAKE_API Code amdsmi_get_gpu_memory_usage(amdsmi::Device device, int kind, uint64_t* used) {
  Call call(__func__, device);
  if (call.code() != amdsmi::kSuccess) return call.code();
  if (!call.device().memory || kind != amdsmi::kMemoryVram) return amdsmi::kNotSupported;
  return write_number(call, std::optional(call.device().memory->reserved + call.device().memory->used), used);
}

FAKE_API Code amdsmi_get_gpu_activity(amdsmi::Device device, amdsmi::EngineUsage* usage) {
  Call call(__func__, device);
  if (call.code() != amdsmi::kSuccess) return call.code();
  if (!call.device().utilization) return amdsmi::kNotSupported;
  *usage = {};
  usage->graphics = call.device().utilization->first;
  usage->memory = call.device().utilization->second;
  usage->media = amdsmi::kNotAvailable16;
  return call.answer(usage, sizeof *usage);
}

// Older versions tell the average, newer ones the current power.
FAKE_API Code amdsmi_get_power_info(amdsmi::Device device, void* info) {
  Call call(__func__, device);
  if (call.code() != amdsmi::kSuccess) return call.code();
  if (!call.device().milliwatts) return amdsmi::kNotSupported;
  const uint32_t watts = *call.device().milliwatts / 1000;
  if (call.version() < 25) {
    amdsmi::Power23 power = {};
    power.current = amdsmi::kNotAvailable16;
    power.average = watts;
    std::memcpy(info, &power, sizeof power);
    return call.answer(info, sizeof power);
  }
  amdsmi::Power26 power = {};
  power.socket = power.current = watts;
  power.average = amdsmi::kNotAvailable32;
  std::memcpy(info, &power, sizeof power);
  return call.answer(info, sizeof power);
}

FAKE_API Code amdsmi_get_power_cap_info(amdsmi::Device device, uint32_t, amdsmi::PowerCap* cap) {
  Call call(__func__, device);
  if (call.code() != amdsmi::kSuccess) return call.code();
  if (!call.device().limit_milliwatts) return amdsmi::kNotSupported;
  *cap = {};
  cap->cap = call.version() < 24 ? *call.device().limit_milliwatts / 1000
                                 : uint64_t{*call.device().limit_milliwatts} * 1000;
  return call.answer(cap, sizeof *cap);
}

// Newer GPUs have no sensor at the edge.
FAKE_API Code amdsmi_get_temp_metric(amdsmi::Device device, int sensor, int, int64_t* celsius) {
  Call call(__func__, device);
  if (call.code() != amdsmi::kSuccess) return call.code();
  if (!call.device().temperature || sensor != amdsmi::kSensorHotspot) return amdsmi::kNotSupported;
  return write_number(call, std::optional(int64_t{*call.device().temperature}), celsius);
}

FAKE_API Code amdsmi_get_clock_info(amdsmi::Device device, int kind, uint32_t* info) {
  Call call(__func__, device);
  if (call.code() != amdsmi::kSuccess) return call.code();
  if (!call.device().clocks) return amdsmi::kNotSupported;
  const auto [graphics, memory] = *call.device().clocks;
  return write_number(call, std::optional(kind == amdsmi::kClockMemory ? memory : graphics), info);
}

FAKE_API Code amdsmi_topo_get_link_type(amdsmi::Device a, amdsmi::Device b, uint64_t* hops, int* type) {
  Call call(__func__, a);
  if (call.code() != amdsmi::kSuccess) return call.code();
  const Call other(__func__, b);
  if (other.code() != amdsmi::kSuccess) return other.code();
  const auto& topology = call.script().topology;
  const auto found = topology.find({static_cast<int>(call.gpu_index()), static_cast<int>(other.gpu_index())});
  if (found == topology.end()) return amdsmi::kNotSupported;
  *type = 0;
  return write_number(call, std::optional(static_cast<uint64_t>(found->second)), hops);
}

#ifdef FAKE_AMDSMI_OLD

FAKE_API Code amdsmi_get_gpu_process_list(amdsmi::Device device, uint32_t* count, uint32_t* list) {
  return answered(Call(__func__, device), [&](Call& call) { return write_processes(call, count, list); });
}

FAKE_API Code amdsmi_get_gpu_process_info(amdsmi::Device device, uint32_t pid, amdsmi::Process23* info) {
  Call call(__func__, device);
  if (call.code() != amdsmi::kSuccess) return call.code();
  for (const fake_nvml::Process& process : call.device().processes) {
    if (process.pid != pid || process.used == ~uint64_t{0}) continue;
    *info = {};
    info->pid = pid;
    info->vram = process.used;
    return call.answer(info, sizeof *info);
  }
  return amdsmi::kNotFound;
}

#else

FAKE_API Code amdsmi_get_gpu_process_list(amdsmi::Device device, uint32_t* count, void* list) {
  Call call(__func__, device);
  if (call.code() != amdsmi::kSuccess) return call.code();
  if (call.version() < 25) return write_processes(call, count, static_cast<amdsmi::Process23*>(list));
  return write_processes(call, count, static_cast<amdsmi::Process26*>(list));
}

#endif  // FAKE_AMDSMI_OLD
