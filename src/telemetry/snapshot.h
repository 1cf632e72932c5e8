// The GPUs of this machine at one moment, as plain data, for choosing, leases, `status` and `top`.
//
//   Snapshot now = snapshot(Wanted::memory | Wanted::power);
//   for (const Gpu& gpu : now.gpus) if (gpu.memory) ... gpu.memory->free ...
//
// NVIDIA's GPUs are read by NVML, AMD's by AMD SMI. Each library is loaded with the first snapshot
// (INNKEEPER_NVML and INNKEEPER_AMDSMI name other files). One is enough, and the other's absence is no
// failure. A machine without either, or with drivers that do not match, gives an empty snapshot with the
// reason in `driver`: never a failure. The GPUs are then the simulated ones that INNKEEPER_NODES names. One
// GPU's trouble never hides another GPU. No AMD GPU has been tried yet.
//
// The identity of a GPU or a MIG instance is its UUID: the text by which the vendor's runtime selects it (see
// Gpu::uuid). Indices are valid within one snapshot only. GPUs are sorted by PCI bus id, which is CUDA's
// order with CUDA_DEVICE_ORDER=PCI_BUS_ID and not otherwise.
//
// The snapshot has all GPUs of the machine that this process may query, whatever CUDA_VISIBLE_DEVICES,
// ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES say: visible.h applies those.
//
// Thread safe, also after fork(). CUDA is never initialised. Blocks: for the time of the library's calls (the
// first one starts it: 5 ms to seconds if the driver's persistence is off). No lock of ours is held
// meanwhile, and a caller must hold none either (I10; a lease's lock above all).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "telemetry/reading.h"

namespace innkeeper::telemetry {

// Values to query, in addition to those that are always read: identity, name, MIG mode and instances, driver.
// Costs are per GPU, as reported for real drivers.
enum class Wanted : uint32_t {
  nothing = 0,
  memory = 1U << 0,       // Cost: ~10 us.
  utilization = 1U << 1,  // Cost: ~3 us.
  power = 1U << 2,        // Power and its limit; ~0.4 ms.
  temperature = 1U << 3,  //
  clocks = 1U << 4,       //
  processes = 1U << 5,    // Several ms under the driver's lock: for attribution only, never in a loop.
  links = 1U << 6,        // Number of GPUs squared times ~10 us; constant while the machine runs.
  all = (1U << 7) - 1,
};
constexpr Wanted operator|(Wanted a, Wanted b) {
  return static_cast<Wanted>(static_cast<uint32_t>(a) | static_cast<uint32_t>(b));
}
constexpr bool has(Wanted set, Wanted part) {
  return (static_cast<uint32_t>(set) & static_cast<uint32_t>(part)) != 0;
}

// used == total - reserved - free, by our own arithmetic: drivers differ on whether "used" includes their own
// reservation. All are >= 0, and reserved + used + free == total.
struct Memory {
  Bytes total;
  Bytes reserved;  // The driver's own memory; 0 if unknown.
  Bytes used;
  Bytes free;
  // True: the GPU has no memory of its own, and these are the machine's (from /proc/meminfo; free is the
  // available memory).
  bool unified = false;
};

struct Utilization {
  int compute_percent = 0;  // Share of time with work, 0 to 100.
  int memory_percent = 0;   // Share of the memory's bandwidth, 0 to 100.
};

struct Power {
  double watts = 0;
  std::optional<double> limit_watts;  // None: the GPU has no readable limit.
};

struct Clocks {
  int sm_mhz = 0;
  int memory_mhz = 0;
  // True: heat, the board or the power supply slows it; neither idling nor a power limit counts.
  bool slowed = false;
};

struct Process {
  // Process id as the driver reports it. In a container it may be the host's number, which
  // means nothing here.
  int64_t pid = 0;
  std::optional<Bytes> used;  // Bytes used; none: the driver does not tell (not: zero).
  bool compute = false;       // Has a CUDA context; a process may be both.
  bool graphics = false;
  std::string instance_uuid;  // MIG instance in which it runs; empty: none or unknown.
};

// One MIG instance (a compute instance in a GPU instance). Its utilization cannot be read.
struct Instance {
  std::string uuid;  // Form "MIG-...".
  std::string name;
  int gpu_instance = -1;  // -1: it could not be read.
  int compute_instance = -1;
  Reading<Memory> memory;  // Memory of the instance, if requested by Wanted::memory.
};

enum class Vendor : uint8_t { nvidia, amd };

struct Gpu {
  // Never empty. NVIDIA's form is "GPU-8f6c...", for CUDA_VISIBLE_DEVICES. AMD's is "GPU-" and 16 digits: the
  // unique id that the kernel's compute driver gives the GPU, for ROCR_VISIBLE_DEVICES (HIP_VISIBLE_DEVICES
  // accepts it too). An AMD GPU without such an id cannot be named there. Its UUID is "GPU-XX-" and its bus
  // id, which makes the runtime show no GPU.
  std::string uuid;
  std::string bus_id;  // Form "00000000:81:00.0", lower case; empty: unknown.
  std::string name;    // For example "NVIDIA H200"; may be empty.
  Vendor vendor = Vendor::nvidia;
  int driver_index = 0;  // Index in the vendor's library, for messages only.
  int kfd_node = -1;     // Node of AMD's compute driver; ROCR's indices follow this order; -1: unknown.

  // True: the GPU cannot be used itself, only its instances, of which there may be none.
  bool mig = false;
  std::vector<Instance> instances;  // Sorted by GPU instance, then compute instance.

  Reading<Memory> memory;
  Reading<Utilization> utilization;
  Reading<Power> power;
  Reading<int> temperature_c;
  Reading<Clocks> clocks;
  // Sorted by pid. An empty list means "no visible process", not "idle": processes of other containers and
  // users may be hidden.
  Reading<std::vector<Process>> processes;
};

// A GPU that exists but cannot be used: fallen off the bus, failing every query, or not permitted. It
// is never leased.
struct LostGpu {
  int driver_index = 0;
  std::string uuid;    // May be empty.
  std::string bus_id;  // May be empty.
  std::string why;     // Reason, one line.
  // True: this process may not open it, and CUDA does not count it, as for another container's or job's GPU.
  bool forbidden = false;
  Vendor vendor = Vendor::nvidia;
};

// Connection between two GPUs, best first.
enum class Path : uint8_t {
  nvlink,        // Direct NVLink.
  xgmi,          // Direct link of AMD's.
  board,         // Both GPUs are on one board.
  pci_switch,    // Through one PCIe switch.
  pci_switches,  // Through several PCIe switches.
  host_bridge,   // Through the CPU's PCIe root.
  numa_node,     // Between root bridges of one NUMA node.
  machine,       // Between processors.
  unknown,       // Not requested, or unknown to the driver.
};
const char* to_string(Path path);

struct Link {
  Path path = Path::unknown;
  int nvlinks = 0;  // Number of NVLinks; 0 unless path is nvlink.
};

// Returns whether one pair's link is better than another's: more NVLinks first, then the shorter path.
bool better(const Link& a, const Link& b);

struct Driver {
  std::string version;       // NVIDIA's version, for example "550.54.15"; empty: there is none.
  std::string nvml_version;  // For example "12.550.54.15"; may be empty.
  int cuda_major = 0;        // The newest CUDA that the driver runs; 0: unknown.
  int cuda_minor = 0;
  std::string amd_version;     // Version of the module amdgpu; may be empty.
  std::string amdsmi_version;  // For example "26.0.2"; empty: there is no AMD driver.
};

// Reason for which there is no driver, for `doctor` and for exit codes.
enum class Trouble : uint8_t {
  none,
  no_library,        // The vendor's library is missing: no driver, or a container without it.
  bad_library,       // The file is not that library, or lacks functions that each version has.
  not_loaded,        // The kernel's driver is not loaded.
  version_mismatch,  // The library and the kernel's driver have different versions.
  no_permission,     // /dev/nvidia* or /dev/kfd cannot be opened.
  wrong_setting,     // INNKEEPER_NODES names simulated GPUs, but cannot be parsed.
  other,
};

// A vendor without a driver here.
struct Absent {
  Vendor vendor = Vendor::nvidia;
  Trouble trouble = Trouble::none;
  std::string text;  // One line with the cure.
};

struct Snapshot {
  std::chrono::steady_clock::time_point taken;
  std::vector<Gpu> gpus;      // GPUs by PCI bus id; UUIDs are unique.
  std::vector<LostGpu> lost;  // Lost GPUs by vendor, then the driver's index.
  // The drivers of this machine. no_driver: no vendor has one; `trouble` gives the reason, and the text is
  // one line with the cure.
  Reading<Driver> driver;
  Trouble trouble = Trouble::none;
  std::vector<Absent> absent;  // Vendors without a driver, even if another vendor has one.
  // True: there is no driver, and the GPUs are the simulated ones of INNKEEPER_NODES.
  bool simulated = false;

  // Returns the link between two indices in `gpus`, in either order. Path::unknown without Wanted::links,
  // between a GPU and itself, and between two vendors' GPUs.
  Link link(size_t a, size_t b) const;
  // Returns the GPU with this UUID, or the one that has this instance; nullptr if there is none.
  const Gpu* find(std::string_view uuid) const;
  const Instance* find_instance(std::string_view uuid) const;

  std::vector<Link> links;  // gpus.size() squared links, row by row; empty unless Wanted::links.
};

Snapshot snapshot(Wanted wanted);

// Stops NVML, as a program may do before it ends; the next snapshot starts it again. In a child of fork() it
// only forgets the parent's session. AMD's library stays started (amdsmi.h gives the reason).
void shut_down();

}  // namespace innkeeper::telemetry
