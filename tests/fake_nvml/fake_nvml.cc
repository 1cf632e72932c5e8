// A library with the part of NVML's C interface that innkeeper calls; its script (script.h) decides the
// answers. Like the real one it counts starts, and a start is good in its own process only (a child of fork()
// must start again). A handle is good until the GPUs change. Calls are thread safe.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "fake_nvml/call.h"
#include "fake_nvml/script.h"
#include "telemetry/nvml_abi.h"

#define FAKE_API extern "C" __attribute__((visibility("default")))

namespace nvml = innkeeper::telemetry::nvml;

namespace fake_nvml {
namespace {

using nvml::Code;

Stage stage("INNKEEPER_FAKE_NVML", nvml::kUninitialized);

nvml::Device handle_of(uintptr_t generation, size_t gpu, size_t instance_plus_one) {
  return reinterpret_cast<nvml::Device>((generation << 24) | (gpu << 12) | (instance_plus_one << 4) | 1);
}

// A call of a function, and of one that asks about a GPU or an instance.
class Call : public BasicCall {
 public:
  explicit Call(const char* function) : BasicCall(stage, function) {
    if (started()) spoil();
  }
  Call(const char* function, nvml::Device handle) : BasicCall(stage, function) {
    if (!started()) return;
    if (!find(handle)) {
      code_ = nvml::kInvalidArgument;
      return;
    }
    if (device_->lost || script().gpus[gpu_].lost) code_ = nvml::kGpuIsLost;
    follow(device_->behaviour, function);
    spoil();
  }

  const Device& device() const { return *device_; }
  bool is_instance() const { return instance_; }
  size_t gpu_index() const { return gpu_; }

 private:
  bool find(nvml::Device handle) {
    const auto number = reinterpret_cast<uintptr_t>(handle);
    gpu_ = (number >> 12) & 0xFFF;
    const size_t instance = (number >> 4) & 0xFF;
    if (gpu_ >= script().gpus.size() || instance > script().gpus[gpu_].instances.size()) return false;
    if (handle != handle_of(generation(), gpu_, instance)) return false;
    instance_ = instance > 0;
    device_ = instance_ ? &script().gpus[gpu_].instances[instance - 1] : &script().gpus[gpu_];
    return true;
  }

  const Device* device_ = nullptr;
  size_t gpu_ = 0;
  bool instance_ = false;
};

Code write_text(Call& call, const std::string& text, char* buffer, uint32_t length) {
  if (text.size() + 1 > length) return nvml::kInsufficientSize;
  std::memcpy(buffer, text.c_str(), text.size() + 1);
  return call.answer(buffer, length, true);
}

// A number that the GPU may not support.
template <class T>
Code write_number(Call& call, const std::optional<T>& number, T* place) {
  if (!number) return nvml::kNotSupported;
  *place = *number;
  return call.answer(place, sizeof *place);
}

template <class Pci>
Code write_pci(Call& call, Pci* pci) {
  const std::string& bus_id = call.device().bus_id;
  if (bus_id.empty()) return nvml::kNotSupported;
  *pci = Pci{};
  // The older field holds four digits of the domain.
  const std::string shown = bus_id.size() < sizeof pci->bus_id ? bus_id : bus_id.substr(bus_id.size() - 12);
  std::memcpy(pci->bus_id, shown.data(), shown.size());
  return call.answer(pci, sizeof *pci);
}

// Drivers of that time wrote another eight bytes into each entry of the third version.
struct LongProcess {
  nvml::Process2 process;
  uint64_t protected_memory;
};
[[maybe_unused]] bool writes_long_entries(const Script& script) {
  return script.driver.rfind("535.54", 0) == 0 || script.driver.rfind("535.86", 0) == 0;
}

template <class Entry>
Code write_processes(Call& call, bool graphics, uint32_t* count, Entry* entries) {
  if (graphics && call.device().utilization == std::nullopt && call.device().processes.empty()) {
    return nvml::kNotSupported;
  }
  uint32_t written = 0;
  const uint32_t capacity = *count;
  for (const Process& process : call.device().processes) {
    if (process.graphics != graphics) continue;
    if (written < capacity) {
      nvml::Process2 entry = {process.pid, process.used, ~0U, ~0U};
      if (call.is_instance()) {
        entry.gpu_instance = call.device().gpu_instance;
        entry.compute_instance = call.device().compute_instance;
      }
      if constexpr (std::is_same_v<Entry, nvml::Process1>)
        entries[written] = {process.pid, process.used};
      else if constexpr (std::is_same_v<Entry, LongProcess>)
        entries[written] = {entry, 0};
      else
        entries[written] = entry;
    }
    ++written;
  }
  *count = written;
  if (written > capacity) return nvml::kInsufficientSize;
  if (call.garbage()) {
    if (capacity > 0) call.answer(entries, sizeof(Entry) * capacity);
    call.answer(count, sizeof *count);
    return call.draw() % 2 == 0 ? nvml::kSuccess : nvml::kInsufficientSize;
  }
  return nvml::kSuccess;
}

}  // namespace
}  // namespace fake_nvml

using fake_nvml::answered;
using fake_nvml::Call;
using nvml::Code;

FAKE_API Code nvmlInit_v2() {
  fake_nvml::stage.start();
  const Call call(__func__);
  if (call.code() != nvml::kSuccess) fake_nvml::stage.stop();
  return call.code();
}

// How other programs start it.
FAKE_API Code nvmlInitWithFlags(unsigned) { return nvmlInit_v2(); }

FAKE_API Code nvmlShutdown() {
  const Call call(__func__);
  if (call.code() == nvml::kSuccess) fake_nvml::stage.stop();
  return call.code();
}

FAKE_API const char* nvmlErrorString(Code code) {
  switch (code) {
    case nvml::kNotSupported: return "Not Supported";
    case nvml::kNoPermission: return "Insufficient Permissions";
    case nvml::kDriverNotLoaded: return "Driver Not Loaded";
    case nvml::kGpuIsLost: return "GPU is lost";
    case nvml::kVersionMismatch: return "Driver/library version mismatch";
    default: return code % 7 == 6 ? nullptr : "Unknown Error";
  }
}

FAKE_API Code nvmlSystemGetDriverVersion(char* text, uint32_t length) {
  return answered(Call(__func__),
                  [&](Call& call) { return write_text(call, call.script().driver, text, length); });
}

FAKE_API Code nvmlSystemGetNVMLVersion(char* text, uint32_t length) {
  return answered(Call(__func__),
                  [&](Call& call) { return write_text(call, call.script().nvml, text, length); });
}

FAKE_API Code nvmlSystemGetCudaDriverVersion(int* version) {
  return answered(Call(__func__),
                  [&](Call& call) { return write_number(call, std::optional(call.script().cuda), version); });
}

FAKE_API Code nvmlDeviceGetCount_v2(uint32_t* count) {
  fake_nvml::stage.follow_script();
  return answered(Call(__func__), [&](Call& call) {
    return write_number(call, std::optional(static_cast<uint32_t>(call.script().gpus.size())), count);
  });
}

FAKE_API Code nvmlDeviceGetHandleByIndex_v2(uint32_t index, nvml::Device* handle) {
  Call call(__func__);
  if (call.code() != nvml::kSuccess) return call.code();
  if (index >= call.script().gpus.size()) return nvml::kInvalidArgument;
  const auto& errors = call.script().gpus[index].behaviour.errors;
  if (const auto error = errors.find(__func__); error != errors.end()) return error->second;
  *handle = fake_nvml::handle_of(call.generation(), index, 0);
  return call.answer(handle, sizeof *handle);
}

FAKE_API Code nvmlDeviceGetIndex(nvml::Device handle, uint32_t* index) {
  return answered(Call(__func__, handle), [&](Call& call) {
    return write_number(call, std::optional(static_cast<uint32_t>(call.gpu_index())), index);
  });
}

FAKE_API Code nvmlDeviceGetUUID(nvml::Device handle, char* text, uint32_t length) {
  return answered(Call(__func__, handle),
                  [&](Call& call) { return write_text(call, call.device().uuid, text, length); });
}

FAKE_API Code nvmlDeviceGetName(nvml::Device handle, char* text, uint32_t length) {
  return answered(Call(__func__, handle),
                  [&](Call& call) { return write_text(call, call.device().name, text, length); });
}

FAKE_API Code nvmlDeviceGetPciInfo_v2(nvml::Device handle, nvml::Pci2* pci) {
  return answered(Call(__func__, handle), [&](Call& call) { return write_pci(call, pci); });
}

FAKE_API Code nvmlDeviceGetMemoryInfo(nvml::Device handle, nvml::Memory1* memory) {
  Call call(__func__, handle);
  if (call.code() != nvml::kSuccess) return call.code();
  const auto& truth = call.device().memory;
  if (!truth) return nvml::kNotSupported;
  const uint64_t used = truth->reserved + truth->used;
  *memory = {truth->total, truth->total - used, used};
  return call.answer(memory, sizeof *memory);
}

FAKE_API Code nvmlDeviceGetUtilizationRates(nvml::Device handle, nvml::Rates* rates) {
  Call call(__func__, handle);
  if (call.code() != nvml::kSuccess) return call.code();
  if (!call.device().utilization) return nvml::kNotSupported;
  *rates = {call.device().utilization->first, call.device().utilization->second};
  return call.answer(rates, sizeof *rates);
}

FAKE_API Code nvmlDeviceGetPowerUsage(nvml::Device handle, uint32_t* milliwatts) {
  return answered(Call(__func__, handle),
                  [&](Call& call) { return write_number(call, call.device().milliwatts, milliwatts); });
}

FAKE_API Code nvmlDeviceGetEnforcedPowerLimit(nvml::Device handle, uint32_t* milliwatts) {
  return answered(Call(__func__, handle),
                  [&](Call& call) { return write_number(call, call.device().limit_milliwatts, milliwatts); });
}

FAKE_API Code nvmlDeviceGetTemperature(nvml::Device handle, int, uint32_t* celsius) {
  return answered(Call(__func__, handle),
                  [&](Call& call) { return write_number(call, call.device().temperature, celsius); });
}

FAKE_API Code nvmlDeviceGetClockInfo(nvml::Device handle, int kind, uint32_t* megahertz) {
  Call call(__func__, handle);
  if (call.code() != nvml::kSuccess) return call.code();
  if (!call.device().clocks) return nvml::kNotSupported;
  const auto [sm, memory] = *call.device().clocks;
  return write_number(call, std::optional(kind == nvml::kClockMemory ? memory : sm), megahertz);
}

FAKE_API Code nvmlDeviceGetCurrentClocksThrottleReasons(nvml::Device handle, uint64_t* reasons) {
  return answered(Call(__func__, handle),
                  [&](Call& call) { return write_number(call, call.device().clock_reasons, reasons); });
}

FAKE_API Code nvmlDeviceGetComputeRunningProcesses(nvml::Device handle, uint32_t* count,
                                                   nvml::Process1* entries) {
  return answered(Call(__func__, handle),
                  [&](Call& call) { return write_processes(call, false, count, entries); });
}

FAKE_API Code nvmlDeviceGetGraphicsRunningProcesses(nvml::Device handle, uint32_t* count,
                                                    nvml::Process1* entries) {
  return answered(Call(__func__, handle),
                  [&](Call& call) { return write_processes(call, true, count, entries); });
}

FAKE_API Code nvmlDeviceGetTopologyCommonAncestor(nvml::Device a, nvml::Device b, int* level) {
  Call call(__func__, a);
  if (call.code() != nvml::kSuccess) return call.code();
  const Call other(__func__, b);
  if (other.code() != nvml::kSuccess) return other.code();
  const auto& levels = call.script().topology;
  const auto found = levels.find({static_cast<int>(call.gpu_index()), static_cast<int>(other.gpu_index())});
  if (found == levels.end()) return nvml::kNotSupported;
  return write_number(call, std::optional(found->second), level);
}

FAKE_API Code nvmlDeviceGetNvLinkState(nvml::Device handle, uint32_t link, uint32_t* active) {
  Call call(__func__, handle);
  if (call.code() != nvml::kSuccess) return call.code();
  if (call.device().nvlinks.empty()) return nvml::kNotSupported;
  if (link >= call.device().nvlinks.size()) return nvml::kInvalidArgument;
  return write_number(call, std::optional(1U), active);
}

#ifndef FAKE_NVML_OLD

FAKE_API Code nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return answered(Call(__func__),
                  [&](Call& call) { return write_number(call, std::optional(call.script().cuda), version); });
}

FAKE_API Code nvmlDeviceGetPciInfo_v3(nvml::Device handle, nvml::Pci3* pci) {
  return answered(Call(__func__, handle), [&](Call& call) { return write_pci(call, pci); });
}

FAKE_API Code nvmlDeviceGetMemoryInfo_v2(nvml::Device handle, nvml::Memory2* memory) {
  Call call(__func__, handle);
  if (call.code() != nvml::kSuccess) return call.code();
  if (memory->version != (40U | 2U << 24)) return nvml::kArgumentVersionMismatch;
  const auto& truth = call.device().memory;
  if (!truth) return nvml::kNotSupported;
  // Some drivers count their reserved memory as used here too; callers must rely on neither.
  *memory = {memory->version, truth->total, truth->reserved, truth->total - truth->reserved - truth->used,
             truth->used + truth->reserved};
  return call.answer(memory, sizeof *memory);
}

FAKE_API Code nvmlDeviceGetComputeRunningProcesses_v2(nvml::Device handle, uint32_t* count,
                                                      nvml::Process2* entries) {
  return answered(Call(__func__, handle),
                  [&](Call& call) { return write_processes(call, false, count, entries); });
}

FAKE_API Code nvmlDeviceGetGraphicsRunningProcesses_v2(nvml::Device handle, uint32_t* count,
                                                       nvml::Process2* entries) {
  return answered(Call(__func__, handle),
                  [&](Call& call) { return write_processes(call, true, count, entries); });
}

FAKE_API Code nvmlDeviceGetComputeRunningProcesses_v3(nvml::Device handle, uint32_t* count,
                                                      nvml::Process2* entries) {
  Call call(__func__, handle);
  if (call.code() != nvml::kSuccess) return call.code();
  if (fake_nvml::writes_long_entries(call.script())) {
    return write_processes(call, false, count, reinterpret_cast<fake_nvml::LongProcess*>(entries));
  }
  return write_processes(call, false, count, entries);
}

FAKE_API Code nvmlDeviceGetGraphicsRunningProcesses_v3(nvml::Device handle, uint32_t* count,
                                                       nvml::Process2* entries) {
  return answered(Call(__func__, handle),
                  [&](Call& call) { return write_processes(call, true, count, entries); });
}

FAKE_API Code nvmlDeviceGetMigMode(nvml::Device handle, uint32_t* current, uint32_t* pending) {
  Call call(__func__, handle);
  if (call.code() != nvml::kSuccess) return call.code();
  *pending = call.device().most_instances ? 1 : 0;
  return write_number(call, std::optional(*pending), current);
}

FAKE_API Code nvmlDeviceGetMaxMigDeviceCount(nvml::Device handle, uint32_t* count) {
  return answered(Call(__func__, handle),
                  [&](Call& call) { return write_number(call, call.device().most_instances, count); });
}

FAKE_API Code nvmlDeviceGetMigDeviceHandleByIndex(nvml::Device handle, uint32_t index,
                                                  nvml::Device* instance) {
  Call call(__func__, handle);
  if (call.code() != nvml::kSuccess) return call.code();
  // As on real GPUs, places between instances are empty: here the first one is.
  if (index == 0 || index > call.device().instances.size()) return nvml::kNotFound;
  *instance = fake_nvml::handle_of(call.generation(), call.gpu_index(), index);
  return call.answer(instance, sizeof *instance);
}

FAKE_API Code nvmlDeviceGetGpuInstanceId(nvml::Device handle, uint32_t* id) {
  return answered(Call(__func__, handle), [&](Call& call) {
    return call.is_instance() ? write_number(call, std::optional(call.device().gpu_instance), id)
                              : nvml::kInvalidArgument;
  });
}

FAKE_API Code nvmlDeviceGetComputeInstanceId(nvml::Device handle, uint32_t* id) {
  return answered(Call(__func__, handle), [&](Call& call) {
    return call.is_instance() ? write_number(call, std::optional(call.device().compute_instance), id)
                              : nvml::kInvalidArgument;
  });
}

FAKE_API Code nvmlDeviceGetNvLinkRemoteDeviceType(nvml::Device handle, uint32_t link, int* kind) {
  Call call(__func__, handle);
  if (call.code() != nvml::kSuccess) return call.code();
  if (link >= call.device().nvlinks.size()) return nvml::kInvalidArgument;
  const bool is_switch = call.device().nvlinks[link] == fake_nvml::kSwitch;
  return write_number(call, std::optional<int>(is_switch ? nvml::kRemoteSwitch : nvml::kRemoteGpu), kind);
}

FAKE_API Code nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml::Device handle, uint32_t link, nvml::Pci3* pci) {
  Call call(__func__, handle);
  if (call.code() != nvml::kSuccess) return call.code();
  if (link >= call.device().nvlinks.size()) return nvml::kInvalidArgument;
  const auto other = static_cast<size_t>(call.device().nvlinks[link]);
  if (other >= call.script().gpus.size()) return nvml::kNotFound;
  const Call remote(__func__, fake_nvml::handle_of(call.generation(), other, 0));
  Call copy = remote;
  return remote.code() != nvml::kSuccess ? remote.code() : write_pci(copy, pci);
}

#endif  // FAKE_NVML_OLD
