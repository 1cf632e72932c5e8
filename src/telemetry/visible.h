// CUDA_VISIBLE_DEVICES, in each of its forms, resolved against a snapshot to UUIDs: which cards and MIG
// instances this process was given. Choosing stays inside it, so nothing here ever widens: what is not
// understood is not visible.
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
// Pure functions, thread safe (but for reading the environment).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "telemetry/snapshot.h"

namespace innkeeper::telemetry {

struct Visible {
  // False: the variable is not set. `uuids` then are all there are.
  bool restricted = false;
  // Cards ("GPU-...") and MIG instances ("MIG-...") in the order in which they were named. A CUDA process may
  // see fewer of several MIG instances, mostly one: hand each process one.
  std::vector<std::string> uuids;
  // The i-th of `uuids` is CUDA's ordinal i in a process that has this variable.
  bool ordered = true;
  // Indices cannot be resolved on this machine (`uuids` is empty): to be reported, not to be taken for "none
  // given".
  bool unclear = false;
  // Why entries do not count, one line; empty if all do.
  std::string note;
};

// `list`: none if the variable is not set. `order`: CUDA_DEVICE_ORDER, empty if not set.
Visible resolve_visible(std::optional<std::string_view> list, std::string_view order, const Snapshot& cards);

// CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER of this process.
Visible visible_from_environment(const Snapshot& cards);

}  // namespace innkeeper::telemetry
