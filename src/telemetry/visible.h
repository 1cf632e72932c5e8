// CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES, in each of their forms, resolved
// against a snapshot to UUIDs: which cards and MIG instances this process was given. Choosing stays inside
// it, so nothing here ever widens: what is not understood is not visible.
//
// The first is for NVIDIA's cards, the others for AMD's; each vendor's list leaves the other's cards alone.
//
// CUDA_VISIBLE_DEVICES:
//
//   not set            every card; with MIG on, its instances in place of the card
//   "" or "-1"         none
//   "2,0"              indices in CUDA's order; read as strtol reads, so "1gpu2" is 1
//   "GPU-8f6c,GPU-9"   UUIDs or unique beginnings of them
//   "MIG-<uuid>", "MIG-GPU-<uuid>/<gi>/<ci>"
//
// The first entry decides whether entries are indices or UUIDs. The first one that is not valid ends the
// list. If one device stands there twice nothing is visible.
//
// CUDA_DEVICE_ORDER says what an index means. With PCI_BUS_ID it is the snapshot's order. Otherwise CUDA puts
// what it takes for the fastest card first, and only CUDA knows which that is: among cards of one model the
// order is the snapshot's, in a machine of several models an index is not resolved and `unclear` is set, with
// the cure in `note`.
//
// A lost card keeps its index, which then gives nothing: what was given is one card fewer.
//
// ROCR_VISIBLE_DEVICES, of AMD's runtime, and HIP_VISIBLE_DEVICES, which HIP applies to what the first left
// (as the sources of both have it; not tried on a card):
//
//   ROCR   not set: all; "": none. Indices and UUIDs may stand side by side; spaces around them, and the case
//          of letters, do not count. An index is a whole number as C writes it ("0x1", "010" is 8).
//          "GPU-4b2c" is a UUID's unique beginning of 5 to 20 characters. What is not valid, or stands there
//          twice, ends the list. No more entries are read than the machine has cards.
//   HIP    not set: all that is left; "": none. An index is written plainly (" 1" and "01" are not valid)
//          and counts among what is left. A UUID's beginning, small letters, is the first card that fits.
//          What is not valid ends the list; what stands there twice is skipped.
//
// Where HIP_VISIBLE_DEVICES is not set HIP reads CUDA_VISIBLE_DEVICES in its place. We do too if all cards
// are AMD's. Beside NVIDIA's cards it is taken to be meant for those alone.
//
// An AMD index counts the cards in the order of the kernel's compute nodes, where the library tells those of
// all cards, else by bus id.
//
// The way back, from cards to the variables, is showing(): NVIDIA's by their UUIDs, AMD's by theirs in ROCR's
// list and by their places among those in HIP's (or a list of HIP's that was there would count among them).
//
// Pure functions, thread safe (but for reading and writing the environment).
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
  // False: the variable is not set. `uuids` then are all there are.
  bool restricted = false;
  // Cards ("GPU-...") and MIG instances ("MIG-...") in the order in which they were named, NVIDIA's first. A
  // CUDA process may see fewer of several MIG instances, mostly one: hand each process one.
  std::vector<std::string> uuids;
  // The i-th of NVIDIA's in `uuids` is CUDA's ordinal i in a process that has these variables, the i-th of
  // AMD's HIP's.
  bool ordered = true;
  // Indices cannot be resolved on this machine (`uuids` is empty): to be reported, not to be taken for "none
  // given".
  bool unclear = false;
  // Why entries do not count, one line; empty if all do.
  std::string note;
};

// NVIDIA's cards. `list`: none if the variable is not set. `order`: CUDA_DEVICE_ORDER, empty if not set.
Visible resolve_visible(std::optional<std::string_view> list, std::string_view order, const Snapshot& cards);

// None: the variable is not set.
struct AmdLists {
  std::optional<std::string_view> rocr;
  std::optional<std::string_view> hip;
  std::optional<std::string_view> cuda;  // HIP reads it where `hip` is not set
};

// AMD's cards.
Visible resolve_visible_amd(const AmdLists& lists, const Snapshot& cards);

// The variables, of this process or of one to be started. None: not set.
struct Variables {
  std::optional<std::string> cuda = std::nullopt;   // CUDA_VISIBLE_DEVICES
  std::optional<std::string> rocr = std::nullopt;   // ROCR_VISIBLE_DEVICES
  std::optional<std::string> hip = std::nullopt;    // HIP_VISIBLE_DEVICES
  std::optional<std::string> order = std::nullopt;  // CUDA_DEVICE_ORDER
  bool operator==(const Variables&) const = default;
};
using NamedVariable = std::pair<const char*, std::optional<std::string>>;
std::array<NamedVariable, 4> by_name(const Variables& variables);
// "ROCR_VISIBLE_DEVICES", or several: which lists are set, for messages. "the machine" if none is.
std::string names_of_lists(const Variables& variables);

Variables own_variables();
void set_own_variables(const Variables& variables);

// NVIDIA's cards, then AMD's.
Visible visible_with(const Variables& variables, const Snapshot& cards);
Visible visible_from_environment(const Snapshot& cards);

// Cards to be shown to a program, by vendor, in the order of CUDA's and HIP's ordinals.
struct Chosen {
  std::vector<std::string> nvidia;
  std::vector<std::string> amd;
  bool both_here = false;  // the machine has cards of both vendors
};
Chosen by_vendor(const std::vector<std::string>& uuids, const Snapshot& cards);
// The variables changed so that a program sees these cards alone: nor the other vendor's, which it was not
// given. With none at all it sees none.
Variables showing(const Chosen& chosen, Variables variables);

}  // namespace innkeeper::telemetry
