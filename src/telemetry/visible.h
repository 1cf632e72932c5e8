// Resolves CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES, in each of their forms,
// against a snapshot. The result is the UUIDs of the GPUs and MIG instances that this process was given.
// Choosing stays within them, so the functions here never widen the set: an entry that is not understood
// makes no GPU visible.
//
// The first variable is for NVIDIA's GPUs, the others for AMD's; each vendor's list does not affect
// the other's GPUs.
//
// CUDA_VISIBLE_DEVICES:
//
//   not set            every GPU; with MIG on, its instances in place of the GPU
//   "" or "-1"         none
//   "2,0"              indices in CUDA's order; read as strtol reads, so "1gpu2" is 1
//   "GPU-8f6c,GPU-9"   UUIDs or unique beginnings of them
//   "MIG-<uuid>", "MIG-GPU-<uuid>/<gi>/<ci>"
//
// The first entry decides whether entries are indices or UUIDs. The first invalid entry ends the list. If a
// device occurs twice, no GPU is visible.
//
// CUDA_DEVICE_ORDER defines the meaning of an index. With PCI_BUS_ID it is the snapshot's order. Otherwise
// CUDA puts the GPU first that it considers fastest, and only CUDA knows which that is. Among GPUs of one
// model the order is the snapshot's. On a machine of several models an index is not resolved and `unclear` is
// set, with the cure in `note`.
//
// A lost GPU keeps its index, which then resolves to no GPU: this process has one GPU fewer.
//
// AMD's runtime applies ROCR_VISIBLE_DEVICES, and HIP applies HIP_VISIBLE_DEVICES to the remaining GPUs (by
// the sources of both; not tried on a GPU):
//
//   ROCR   not set: all; "": none. Indices and UUIDs may be mixed; spaces around them, and the case
//          of letters, do not count. An index is a whole number as C writes it ("0x1", "010" is 8).
//          "GPU-4b2c" is a UUID's unique beginning of 5 to 20 characters. An invalid or repeated entry
//          ends the list. No more entries are read than the machine has GPUs.
//   HIP    not set: all remaining GPUs; "": none. An index is written plainly (" 1" and "01" are not
//          valid) and counts the remaining GPUs. A UUID's beginning, in small letters, is the first GPU
//          that fits. An invalid entry ends the list; a repeated one is skipped.
//
// If HIP_VISIBLE_DEVICES is not set, HIP reads CUDA_VISIBLE_DEVICES in its place. We do too if all GPUs are
// AMD's. On a machine with NVIDIA's GPUs the variable is taken to concern those alone.
//
// An AMD index counts the GPUs in the order of the kernel's compute nodes if the library reports those of all
// GPUs, else by bus id.
//
// The inverse, from GPUs to the variables, is showing(). It names NVIDIA's GPUs by their UUIDs. It names
// AMD's by their UUIDs in ROCR's list, and by their places among those in HIP's list. (A former HIP list
// would count among them.)
//
// Pure functions; thread safe, except those that read and write the environment.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "telemetry/snapshot.h"

namespace innkeeper::telemetry {

struct Visible {
  // False: the variable is not set, and `uuids` has all GPUs.
  bool restricted = false;
  // GPUs ("GPU-...") and MIG instances ("MIG-...") in the order of the list, NVIDIA's first. A CUDA process
  // may see fewer of several MIG instances, mostly one: hand each process one.
  std::vector<std::string> uuids;
  // True: in a process with these variables the i-th NVIDIA GPU of `uuids` is CUDA's ordinal i, and the i-th
  // AMD GPU is HIP's.
  bool ordered = true;
  // True: indices cannot be resolved on this machine (`uuids` is empty). Report this; it does not
  // mean "none given".
  bool unclear = false;
  // Why entries do not count, one line; empty if all do.
  std::string note;
};

// Resolves NVIDIA's GPUs. `list`: none if the variable is not set. `order`: CUDA_DEVICE_ORDER,
// empty if not set.
Visible resolve_visible(std::optional<std::string_view> list, std::string_view order, const Snapshot& gpus);

// Values of the variables; none: not set.
struct AmdLists {
  std::optional<std::string_view> rocr;
  std::optional<std::string_view> hip;
  std::optional<std::string_view> cuda;  // HIP reads it if `hip` is not set.
};

// Resolves AMD's GPUs.
Visible resolve_visible_amd(const AmdLists& lists, const Snapshot& gpus);

// The variables of this process or of a program to start; none: not set.
struct Variables {
  std::optional<std::string> cuda = std::nullopt;   // CUDA_VISIBLE_DEVICES
  std::optional<std::string> rocr = std::nullopt;   // ROCR_VISIBLE_DEVICES
  std::optional<std::string> hip = std::nullopt;    // HIP_VISIBLE_DEVICES
  std::optional<std::string> order = std::nullopt;  // CUDA_DEVICE_ORDER
  bool operator==(const Variables&) const = default;
};
using NamedVariable = std::pair<const char*, std::optional<std::string>>;
std::array<NamedVariable, 4> by_name(const Variables& variables);
// Returns the names of the lists that are set, for messages, for example "ROCR_VISIBLE_DEVICES"; "the
// machine" if none is.
std::string names_of_lists(const Variables& variables);

Variables own_variables();
void set_own_variables(const Variables& variables);

// Resolves NVIDIA's GPUs, then AMD's.
Visible visible_with(const Variables& variables, const Snapshot& gpus);
Visible visible_from_environment(const Snapshot& gpus);

// GPUs to show to a program, by vendor, in the order of CUDA's and HIP's ordinals.
struct Chosen {
  std::vector<std::string> nvidia;
  std::vector<std::string> amd;
  bool both_here = false;  // True: the machine has GPUs of both vendors.
};
Chosen by_vendor(const std::vector<std::string>& uuids, const Snapshot& gpus);
// Changes the variables so that a program sees only these GPUs, and none of the other vendor's, which it was
// not given. If `chosen` is empty, it sees none.
Variables showing(const Chosen& chosen, Variables variables);

}  // namespace innkeeper::telemetry
