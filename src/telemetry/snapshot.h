// The GPUs of this machine at one moment, as plain data: what choosing, leases, `status` and `top` read.
//
//   Snapshot now = snapshot(Wanted::memory | Wanted::power);
//   for (const Card& card : now.cards) if (card.memory) ... card.memory->free ...
//
// NVIDIA's cards come from NVML, AMD's from AMD SMI. Each library is loaded when the first snapshot is taken
// (INNKEEPER_NVML and INNKEEPER_AMDSMI name other files); one is enough, and the other's absence troubles
// nobody. A machine without either, or with drivers that do not fit, is an empty snapshot whose `driver` says
// so: never a failure. There the simulated GPUs that INNKEEPER_NODES names are the cards. One card's trouble
// never hides another card. No AMD card has been tried yet.
//
// A card's identity is its UUID, so is a MIG instance's: the text by which the vendor's runtime takes
// it (see Card::uuid). Indices are good within one snapshot only: cards are sorted by PCI bus id, which is
// CUDA's order with CUDA_DEVICE_ORDER=PCI_BUS_ID and not otherwise.
//
// All cards of the machine (that this process may ask about) are here, whatever CUDA_VISIBLE_DEVICES,
// ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES say: visible.h applies those.
//
// Thread safe, also after fork(). CUDA is never initialised. Blocks: for the time of the library's calls (the
// first one starts it: 5 ms to seconds where the driver's persistence is off). No lock of ours is held
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

// What to ask, besides what is always asked: identity, name, MIG mode and instances, driver. Costs are per
// card, as reported for real drivers.
enum class Wanted : uint32_t {
  nothing = 0,
  memory = 1U << 0,       // ~10 us
  utilization = 1U << 1,  // ~3 us
  power = 1U << 2,        // ~0.4 ms; with its limit
  temperature = 1U << 3,  //
  clocks = 1U << 4,       //
  processes = 1U << 5,    // several ms, and it holds the driver's lock: for attribution only, never in a loop
  links = 1U << 6,        // cards squared times ~10 us; does not change while the machine runs
  all = (1U << 7) - 1,
};
constexpr Wanted operator|(Wanted a, Wanted b) {
  return static_cast<Wanted>(static_cast<uint32_t>(a) | static_cast<uint32_t>(b));
}
constexpr bool has(Wanted set, Wanted part) {
  return (static_cast<uint32_t>(set) & static_cast<uint32_t>(part)) != 0;
}

// used == total - reserved - free, by our own arithmetic: drivers differ on whether their "used" includes
// what they reserve for themselves. All are >= 0, and reserved + used + free == total.
struct Memory {
  Bytes total;
  Bytes reserved;  // the driver's own; 0 where it cannot tell
  Bytes used;
  Bytes free;
  // The card has no memory of its own: these are the machine's (from /proc/meminfo; free is what is
  // available).
  bool unified = false;
};

struct Utilization {
  int compute_percent = 0;  // 0 to 100
  int memory_percent = 0;   // of the memory's bandwidth
};

struct Power {
  double watts = 0;
  std::optional<double> limit_watts;  // none: the card has no limit that can be read
};

struct Clocks {
  int sm_mhz = 0;
  int memory_mhz = 0;
  bool slowed = false;  // by heat, by the board, or by power's supply; not by idling, nor by a power limit
};

struct Process {
  // As the driver says it: in a container it may be the host's number, which means nothing here.
  int64_t pid = 0;
  std::optional<Bytes> used;  // none: the driver cannot tell (not: nothing)
  bool compute = false;       // has a CUDA context; a process may be both
  bool graphics = false;
  std::string instance_uuid;  // the MIG instance it runs in, empty if none or unknown
};

// One MIG instance (a compute instance in a GPU instance). Its utilisation cannot be read.
struct Instance {
  std::string uuid;  // "MIG-..."
  std::string name;
  int gpu_instance = -1;  // -1: could not be read
  int compute_instance = -1;
  Reading<Memory> memory;  // Wanted::memory
};

enum class Vendor : uint8_t { nvidia, amd };

struct Card {
  // Never empty. NVIDIA's: "GPU-8f6c...", for CUDA_VISIBLE_DEVICES. AMD's: "GPU-" and 16 digits, the unique
  // id that the kernel's compute driver gives the card, for ROCR_VISIBLE_DEVICES (HIP_VISIBLE_DEVICES takes
  // it too). An AMD card without such an id cannot be named there: it is "GPU-XX-" and its bus id, which
  // makes the runtime show no card.
  std::string uuid;
  std::string bus_id;  // "00000000:81:00.0", lower case; empty if it cannot be told
  std::string name;    // "NVIDIA H200", may be empty
  Vendor vendor = Vendor::nvidia;
  int driver_index = 0;  // the vendor's library's own index: for messages only
  int kfd_node = -1;     // AMD's: ROCR's indices count in the order of these; -1: unknown

  // With MIG on, a card cannot be used itself, only its instances. There may be none.
  bool mig = false;
  std::vector<Instance> instances;  // sorted by GPU instance, then compute instance

  Reading<Memory> memory;
  Reading<Utilization> utilization;
  Reading<Power> power;
  Reading<int> temperature_c;
  Reading<Clocks> clocks;
  // Sorted by pid. An empty list is "no process that can be seen", not "idle": processes of other containers
  // and users may be hidden.
  Reading<std::vector<Process>> processes;
};

// A card that is there but cannot be used: fallen off the bus, failing every question, or not ours. Never to
// be leased.
struct LostCard {
  int driver_index = 0;
  std::string uuid;    // may be empty
  std::string bus_id;  // may be empty
  std::string why;     // one line
  // This process may not open it, and CUDA does not count it: another container's, or another job's.
  bool forbidden = false;
  Vendor vendor = Vendor::nvidia;
};

// How two cards reach each other, best first.
enum class Path : uint8_t {
  nvlink,        // directly
  xgmi,          // directly, AMD's
  board,         // on one board
  pci_switch,    // through one PCIe switch
  pci_switches,  // through several
  host_bridge,   // through the CPU's PCIe root
  numa_node,     // between root bridges of one node
  machine,       // between processors
  unknown,       // not asked, or the driver cannot tell
};
const char* to_string(Path path);

struct Link {
  Path path = Path::unknown;
  int nvlinks = 0;  // how many, where path is nvlink
};

// Is one pair's link better than another's? More NVLinks first, then the shorter path.
bool better(const Link& a, const Link& b);

struct Driver {
  std::string version;       // NVIDIA's, "550.54.15"; empty if there is none
  std::string nvml_version;  // "12.550.54.15", may be empty
  int cuda_major = 0;        // the newest CUDA that the driver runs; 0: unknown
  int cuda_minor = 0;
  std::string amd_version;     // of the module amdgpu, may be empty
  std::string amdsmi_version;  // "26.0.2"; empty if there is no AMD driver
};

// Why there is no driver, for `doctor` and for exit codes.
enum class Trouble : uint8_t {
  none,
  no_library,        // the vendor's library is not here: no driver, or a container without it
  bad_library,       // it is not what its name says, or lacks what each version has
  not_loaded,        // the kernel's driver is not there
  version_mismatch,  // the library and the kernel's driver are of different versions
  no_permission,     // /dev/nvidia* or /dev/kfd cannot be opened
  wrong_setting,     // INNKEEPER_NODES names simulated GPUs, and cannot be read
  other,
};

// A vendor without a driver here.
struct Absent {
  Vendor vendor = Vendor::nvidia;
  Trouble trouble = Trouble::none;
  std::string text;  // one line with the cure
};

struct Snapshot {
  std::chrono::steady_clock::time_point taken;
  std::vector<Card> cards;     // by PCI bus id; UUIDs are unique
  std::vector<LostCard> lost;  // by vendor, then the driver's index
  // The drivers that are there. no_driver: there is none, of no vendor; `trouble` says which, the text is one
  // line with the cure.
  Reading<Driver> driver;
  Trouble trouble = Trouble::none;
  std::vector<Absent> absent;  // also where another vendor's driver is there
  // There is no driver, and the cards are the simulated ones of INNKEEPER_NODES.
  bool simulated = false;

  // By index in `cards`, whichever is first. Path::unknown unless Wanted::links, between a card and itself,
  // and between two vendors' cards.
  Link link(size_t a, size_t b) const;
  // The card with this UUID, or the one that has this instance; nullptr if there is none.
  const Card* find(std::string_view uuid) const;
  const Instance* find_instance(std::string_view uuid) const;

  std::vector<Link> links;  // cards.size() squared, row by row; empty unless Wanted::links
};

Snapshot snapshot(Wanted wanted);

// Gives NVML back, as a program may do before it ends; the next snapshot starts it again. In a child of
// fork() it only forgets the parent's. AMD's library stays started (amdsmi.h says why).
void shut_down();

}  // namespace innkeeper::telemetry
