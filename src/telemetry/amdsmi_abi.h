// The part of AMD SMI's C interface (libamd_smi.so) that we call, declared from its public header, so that
// the build needs no file of AMD's. Sizes are asserted.
//
// AMD changes structs from release to release. We therefore call only functions that did not change between
// ROCm 6.0 (library version 23.4) and 7.x (26), by the headers of 23.4, 24.5, 24.6, 24.7 and 26.5:
//   - numbers and text that are written through pointers: memory, temperature, UUID, PCI place, hops;
//   - EngineUsage, PowerCap and KfdInfo, whose layout is the same in all of them;
//   - of AsicInfo, DriverInfo and ClockInfo only the first field, read from a buffer that no version fills.
// Two structs have a layout per version, told by Version::first: the power's and the process's. The header of
// 25 (ROCm 6.4) and those after 26 were not at hand, so power and processes are "not supported" there.
//
// Not called: amdsmi_topo_get_link_type's type (its numbers were exchanged once; the hops give the
// same), amdsmi_get_gpu_metrics_info (another struct in each release), and amdsmi_shut_down (amdsmi.h
// gives the reason).
#pragma once

#include <cstddef>
#include <cstdint>

namespace innkeeper::telemetry::amdsmi {

// amdsmi_status_t, declared as int because newer libraries know more values than are listed here.
using Code = int;
inline constexpr Code kSuccess = 0;
inline constexpr Code kInvalidArgument = 1;
inline constexpr Code kNotSupported = 2;
inline constexpr Code kNotYetImplemented = 3;
inline constexpr Code kFailLoadModule = 4;
inline constexpr Code kFailLoadSymbol = 5;
inline constexpr Code kNoPermission = 10;
inline constexpr Code kInputOutput = 12;
inline constexpr Code kOutOfResources = 15;  // A list has more entries than the buffer holds.
inline constexpr Code kNotFound = 31;
inline constexpr Code kNotInitialized = 32;
inline constexpr Code kDriverNotLoaded = 34;
inline constexpr Code kNoData = 40;
inline constexpr Code kFileNotFound = 52;

inline constexpr uint64_t kInitGpus = 2;  // amdsmi_init_flags_t
inline constexpr uint32_t kUuidSize = 38;

// Values of a field that the driver does not know; wider fields may hold the 16-bit value.
inline constexpr uint32_t kNotAvailable16 = 0xFFFF;
inline constexpr uint32_t kNotAvailable32 = ~uint32_t{0};

using Socket = struct OpaqueSocket*;
using Device = struct OpaqueProcessor*;

// {year, major, minor, release} up to ROCm 6.3, {major, minor, release} from 6.4 on. The major continued from
// the year, so the first number alone orders the versions. Both forms have this length.
struct Version {
  uint32_t first, second, third, fourth;
  const char* build;
};
static_assert(sizeof(Version) == 24);
inline constexpr uint32_t kOldestVersion = 23;

// From the lowest bit: function 3 bits, device 5, bus 8, domain 48.
using Place = uint64_t;

struct EngineUsage {
  uint32_t graphics, memory, media;  // Use of each engine, percent.
  uint32_t reserved[13];
};
static_assert(sizeof(EngineUsage) == 64);

// The unit is watts before ROCm 6.1.2 and microwatts since: no GPU's cap is in the range of both.
struct PowerCap {
  uint64_t cap, default_cap, clock_cap, least, most;
  uint64_t reserved[3];
};
static_assert(sizeof(PowerCap) == 64);

// The unit is watts. A GPU fills one of the fields; newer GPUs fill the current one.
struct Power23 {  // Versions 23 and 24.
  uint32_t current, average, graphics_voltage, soc_voltage, memory_voltage, limit;
  uint32_t reserved[11];
};
static_assert(sizeof(Power23) == 68);
struct Power26 {  // Version 26.
  uint64_t socket;
  uint32_t current, average;
  uint64_t graphics_voltage, soc_voltage, memory_voltage;
  uint32_t limit, board;
  uint64_t reserved[18];
};
static_assert(sizeof(Power26) == 192 && offsetof(Power26, current) == 8);

// One process, in versions whose texts have kText characters.
template <size_t kText>
struct ProcessOf {
  char name[kText];
  uint32_t pid;
  uint64_t memory;
  uint64_t graphics_time, encoder_time;
  uint32_t reserved_usage[12];
  uint64_t gtt_memory, cpu_memory, vram;
  uint32_t reserved_memory[10];
  char container[kText];
};
struct Process23 : ProcessOf<32> {  // Versions 23 and 24.
  uint32_t reserved[4];
};
static_assert(sizeof(Process23) == 224);
struct Process26 : ProcessOf<256> {  // Version 26.
  uint32_t reserved[12];
};
static_assert(sizeof(Process26) == 704);

struct KfdInfo {
  uint64_t kfd_id;
  uint32_t node, partition;
  uint32_t reserved[12];
};
static_assert(sizeof(KfdInfo) == 64);

// A buffer larger than any version of a struct of which we read only the beginning.
struct Buffer {
  alignas(8) char bytes[8192];
};

enum ClockKind : int { kClockGraphics = 0, kClockMemory = 4 };
enum MemoryKind : int { kMemoryVram = 0 };
enum Sensor : int { kSensorEdge = 0, kSensorHotspot = 1 };
enum TemperatureKind : int { kTemperatureNow = 0 };
enum DeviceKind : int { kKindAmdGpu = 1 };

// Every function that we may call: member, name, type. The process list is an array of process numbers if the
// library has amdsmi_get_gpu_process_info (before ROCm 6.2), and an array of processes since.
#define IK_AMDSMI_FUNCTIONS(F) \
  F(init, "amdsmi_init", Code(uint64_t)) \
  F(error_string, "amdsmi_status_code_to_string", Code(Code, const char**)) \
  F(version, "amdsmi_get_lib_version", Code(Version*)) \
  F(sockets, "amdsmi_get_socket_handles", Code(uint32_t*, Socket*)) \
  F(devices, "amdsmi_get_processor_handles", Code(Socket, uint32_t*, Device*)) \
  F(kind, "amdsmi_get_processor_type", Code(Device, int*)) \
  F(place, "amdsmi_get_gpu_device_bdf", Code(Device, Place*)) \
  F(uuid, "amdsmi_get_gpu_device_uuid", Code(Device, uint32_t*, char*)) \
  F(asic_info, "amdsmi_get_gpu_asic_info", Code(Device, Buffer*)) \
  F(driver_info, "amdsmi_get_gpu_driver_info", Code(Device, Buffer*)) \
  F(kfd_info, "amdsmi_get_gpu_kfd_info", Code(Device, KfdInfo*)) \
  F(memory_total, "amdsmi_get_gpu_memory_total", Code(Device, int, uint64_t*)) \
  F(memory_used, "amdsmi_get_gpu_memory_usage", Code(Device, int, uint64_t*)) \
  F(usage, "amdsmi_get_gpu_activity", Code(Device, EngineUsage*)) \
  F(power, "amdsmi_get_power_info", Code(Device, Buffer*)) \
  F(power_cap, "amdsmi_get_power_cap_info", Code(Device, uint32_t, PowerCap*)) \
  F(temperature, "amdsmi_get_temp_metric", Code(Device, int, int, int64_t*)) \
  F(clock, "amdsmi_get_clock_info", Code(Device, int, Buffer*)) \
  F(process_list, "amdsmi_get_gpu_process_list", Code(Device, uint32_t*, void*)) \
  F(process_info, "amdsmi_get_gpu_process_info", Code(Device, uint32_t, Process23*)) \
  F(link, "amdsmi_topo_get_link_type", Code(Device, Device, uint64_t*, int*))

}  // namespace innkeeper::telemetry::amdsmi
