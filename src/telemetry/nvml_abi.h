// The part of NVML's C interface that we call, declared from its public documentation, so that the build
// needs no file of NVIDIA's. Layouts and numbers are the driver's and must not change; sizes are asserted.
//
// Functions whose struct changed have one name per version. A name and its struct are never mixed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace innkeeper::telemetry::nvml {

// nvmlReturn_t, declared as int because newer drivers know more values than are listed here.
using Code = int;
inline constexpr Code kSuccess = 0;
inline constexpr Code kUninitialized = 1;
inline constexpr Code kInvalidArgument = 2;
inline constexpr Code kNotSupported = 3;
inline constexpr Code kNoPermission = 4;
inline constexpr Code kNotFound = 6;
inline constexpr Code kInsufficientSize = 7;
inline constexpr Code kDriverNotLoaded = 9;
inline constexpr Code kLibraryNotFound = 12;
inline constexpr Code kFunctionNotFound = 13;
inline constexpr Code kGpuIsLost = 15;
inline constexpr Code kVersionMismatch = 18;  // The library's version differs from the kernel driver's.
inline constexpr Code kArgumentVersionMismatch = 25;
inline constexpr Code kDeprecated = 26;
inline constexpr Code kGpuNotFound = 28;

// Values of a field that the driver does not know.
inline constexpr uint64_t kNotAvailable64 = ~uint64_t{0};
inline constexpr uint32_t kNotAvailable32 = ~uint32_t{0};

using Device = struct OpaqueDevice*;

inline constexpr uint32_t kTextSize = 96;  // Buffer size, bytes, enough for names, UUIDs and versions.

// Newer structs begin with a word that holds their size and version.
template <class Struct>
constexpr uint32_t versioned(uint32_t version) {
  return static_cast<uint32_t>(sizeof(Struct)) | (version << 24);
}

struct Memory1 {
  uint64_t total, free, used;
};
static_assert(sizeof(Memory1) == 24);

struct Memory2 {
  uint32_t version;  // versioned<Memory2>(2)
  uint64_t total, reserved, free, used;
};
static_assert(sizeof(Memory2) == 40 && offsetof(Memory2, total) == 8);

struct Pci2 {
  char bus_id[16];
  uint32_t domain, bus, device, device_id, subsystem_id;
  uint32_t unused[4];
};
static_assert(sizeof(Pci2) == 52);

struct Pci3 {
  char bus_id_legacy[16];
  uint32_t domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(Pci3) == 68);

struct Rates {
  uint32_t gpu, memory;
};
static_assert(sizeof(Rates) == 8);

struct Process1 {
  uint32_t pid;
  uint64_t used;
};
static_assert(sizeof(Process1) == 16);

// Layout of both _v2 and _v3.
struct Process2 {
  uint32_t pid;
  uint64_t used;
  uint32_t gpu_instance, compute_instance;
};
static_assert(sizeof(Process2) == 24);

enum ClockKind : int { kClockSm = 1, kClockMemory = 2 };
// Reasons for low clocks: the hardware's slowdown, heat (by software, by hardware), the power supply's brake.
constexpr uint64_t kSlowdowns = 0x08 | 0x20 | 0x40 | 0x80;
enum Sensor : int { kSensorGpu = 0 };
enum Topology : int {
  kTopologyInternal = 0,
  kTopologySingle = 10,
  kTopologyMultiple = 20,
  kTopologyHostBridge = 30,
  kTopologyNode = 40,
  kTopologySystem = 50,
};
enum RemoteKind : int { kRemoteGpu = 0, kRemoteSwitch = 2 };
inline constexpr uint32_t kMaxNvlinks = 36;

// Every function that we may call: member, name, type. Versions with different structs are separate members.
#define IK_NVML_FUNCTIONS(F) \
  F(init, "nvmlInit_v2", Code()) \
  F(shutdown, "nvmlShutdown", Code()) \
  F(error_string, "nvmlErrorString", const char*(Code)) \
  F(driver_version, "nvmlSystemGetDriverVersion", Code(char*, uint32_t)) \
  F(nvml_version, "nvmlSystemGetNVMLVersion", Code(char*, uint32_t)) \
  F(cuda_version_2, "nvmlSystemGetCudaDriverVersion_v2", Code(int*)) \
  F(cuda_version_1, "nvmlSystemGetCudaDriverVersion", Code(int*)) \
  F(count, "nvmlDeviceGetCount_v2", Code(uint32_t*)) \
  F(handle, "nvmlDeviceGetHandleByIndex_v2", Code(uint32_t, Device*)) \
  F(uuid, "nvmlDeviceGetUUID", Code(Device, char*, uint32_t)) \
  F(name, "nvmlDeviceGetName", Code(Device, char*, uint32_t)) \
  F(pci_3, "nvmlDeviceGetPciInfo_v3", Code(Device, Pci3*)) \
  F(pci_2, "nvmlDeviceGetPciInfo_v2", Code(Device, Pci2*)) \
  F(memory_2, "nvmlDeviceGetMemoryInfo_v2", Code(Device, Memory2*)) \
  F(memory_1, "nvmlDeviceGetMemoryInfo", Code(Device, Memory1*)) \
  F(utilization, "nvmlDeviceGetUtilizationRates", Code(Device, Rates*)) \
  F(power, "nvmlDeviceGetPowerUsage", Code(Device, uint32_t*)) \
  F(power_limit, "nvmlDeviceGetEnforcedPowerLimit", Code(Device, uint32_t*)) \
  F(temperature, "nvmlDeviceGetTemperature", Code(Device, int, uint32_t*)) \
  F(clock, "nvmlDeviceGetClockInfo", Code(Device, int, uint32_t*)) \
  F(clock_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons", Code(Device, uint64_t*)) \
  F(compute_processes_3, "nvmlDeviceGetComputeRunningProcesses_v3", Code(Device, uint32_t*, Process2*)) \
  F(compute_processes_2, "nvmlDeviceGetComputeRunningProcesses_v2", Code(Device, uint32_t*, Process2*)) \
  F(compute_processes_1, "nvmlDeviceGetComputeRunningProcesses", Code(Device, uint32_t*, Process1*)) \
  F(graphics_processes_3, "nvmlDeviceGetGraphicsRunningProcesses_v3", Code(Device, uint32_t*, Process2*)) \
  F(graphics_processes_2, "nvmlDeviceGetGraphicsRunningProcesses_v2", Code(Device, uint32_t*, Process2*)) \
  F(graphics_processes_1, "nvmlDeviceGetGraphicsRunningProcesses", Code(Device, uint32_t*, Process1*)) \
  F(mig_mode, "nvmlDeviceGetMigMode", Code(Device, uint32_t*, uint32_t*)) \
  F(mig_count, "nvmlDeviceGetMaxMigDeviceCount", Code(Device, uint32_t*)) \
  F(mig_handle, "nvmlDeviceGetMigDeviceHandleByIndex", Code(Device, uint32_t, Device*)) \
  F(gpu_instance, "nvmlDeviceGetGpuInstanceId", Code(Device, uint32_t*)) \
  F(compute_instance, "nvmlDeviceGetComputeInstanceId", Code(Device, uint32_t*)) \
  F(ancestor, "nvmlDeviceGetTopologyCommonAncestor", Code(Device, Device, int*)) \
  F(nvlink_state, "nvmlDeviceGetNvLinkState", Code(Device, uint32_t, uint32_t*)) \
  F(nvlink_remote_kind, "nvmlDeviceGetNvLinkRemoteDeviceType", Code(Device, uint32_t, int*)) \
  F(nvlink_remote, "nvmlDeviceGetNvLinkRemotePciInfo_v2", Code(Device, uint32_t, Pci3*))

}  // namespace innkeeper::telemetry::nvml
