// The GPUs of this machine at one moment, as plain data: what choosing, leases, `status` and `top` read.
//
//   Snapshot now = snapshot(Wanted::memory | Wanted::power);
//   for (const Card& card : now.cards) if (card.memory) ... card.memory->free ...
//
// Cards come from NVML, which is loaded when the first snapshot is taken (INNKEEPER_NVML names another
// library file). A machine without it, or with a driver that does not fit, is an empty snapshot whose
// `driver` says so: never a failure. One card's trouble never hides another card.
//
// A card's identity is its UUID, an instance's (MIG) likewise. Indices are good within one snapshot only:
// cards are sorted by PCI bus id, which is CUDA's order with CUDA_DEVICE_ORDER=PCI_BUS_ID and not otherwise.
//
// All cards of the machine (that this process may ask about) are here, whatever CUDA_VISIBLE_DEVICES says:
// visible.h applies that.
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

enum class Maker : uint8_t { nvidia, amd };

struct Card {
  std::string uuid;    // "GPU-8f6c...": never empty
  std::string bus_id;  // "00000000:81:00.0", lower case; never empty
  std::string name;    // "NVIDIA H200", may be empty
  Maker maker = Maker::nvidia;
  int driver_index = 0;  // NVML's own index: for messages only

  // With MIG on, a card cannot be used itself, only its instances. There may be none.
  bool mig = false;
  std::vector<Instance> instances;  // sorted by GPU instance, then compute instance

  Reading<Memory> memory;
  Reading<Utilization> utilization;
  Reading<Power> power;
  Reading<int> temperature_c;
  Reading<Clocks> clocks;
  // Sorted by pid. An empty list is "nobody that can be seen", not "idle": processes of other containers and
  // users may be hidden.
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
};

// How two cards reach each other, best first.
enum class Path : uint8_t {
  nvlink,        // directly
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
  std::string version;       // "550.54.15"
  std::string nvml_version;  // "12.550.54.15", may be empty
  int cuda_major = 0;        // the newest CUDA that the driver runs; 0: unknown
  int cuda_minor = 0;
};

// Why there is no driver, for `doctor` and for exit codes.
enum class Trouble : uint8_t {
  none,
  no_library,        // libnvidia-ml.so.1 is not here: no NVIDIA driver, or a container without it
  bad_library,       // it is not NVML, or lacks what every NVML has
  not_loaded,        // the kernel's driver is not there
  version_mismatch,  // the library and the kernel's driver are of different versions
  no_permission,     // /dev/nvidia* cannot be opened
  other,
};

struct Snapshot {
  std::chrono::steady_clock::time_point taken;
  std::vector<Card> cards;     // by PCI bus id; UUIDs are unique
  std::vector<LostCard> lost;  // by NVML's index
  Reading<Driver> driver;      // no_driver: `trouble` says which, its text is one line with the cure
  Trouble trouble = Trouble::none;

  // By index in `cards`, whichever is first. Path::unknown unless Wanted::links, and between a card and
  // itself.
  Link link(size_t a, size_t b) const;
  // The card with this UUID, or the one that has this instance; nullptr if there is none.
  const Card* find(std::string_view uuid) const;
  const Instance* find_instance(std::string_view uuid) const;

  std::vector<Link> links;  // cards.size() squared, row by row; empty unless Wanted::links
};

Snapshot snapshot(Wanted wanted);

// Gives the library back, as a program may do before it ends; the next snapshot starts it again. In a child
// of fork() it only forgets the parent's.
void shut_down();

}  // namespace innkeeper::telemetry
