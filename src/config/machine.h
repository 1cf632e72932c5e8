// Parses the nodes of a managed device as the user writes them: INNKEEPER_NODES, or configure(nodes=...).
//
//   nodes := item {"," item}     empty text is `auto`
//   item  := auto[:SIZE]         the visible GPUs, if any, then host; only a disk may be combined with it
//          | KIND[:INDEX][:SIZE] all visible GPUs, or one; SIZE is each one's budget (default: all)
//          | KIND:[COUNTx]SIZE   COUNT simulated accelerators of SIZE each, numbered from 0 on
//          | host[:SIZE]         host memory (default: 4/5 of the memory outside the simulated nodes)
//          | disk:DIRECTORY:SIZE  a spill file in directory DIRECTORY, whose name may have ':' but not ','
//
// KIND is a kind of accelerator_kinds.h: in the first form `cuda`, in the second, simulated kinds', `sim`.
//
// It also parses the simulator's options, INNKEEPER_SIM:
//
//   options := option {"," option}
//   option  := late | early | random[:SEED] | poison=on | poison=off | data=on | data=off
//            | gpu=NAME | link=NAME | peer=NAME
//
// `early` alone also means poison=off: the cheap simulator, for all uses except the search for missing waits.
// `data=off`: the nodes hold no bytes, so they may be larger than this machine; sim nodes and host alone.
//
// Parsing opens no device and allocates no memory. Each failure is one line: the text read and the text
// expected, with an example.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "device/device_api.h"
#include "sim/accelerator.h"

namespace innkeeper {

// The kind of simulated accelerators that telemetry shows, leases reserve and CUDA_VISIBLE_DEVICES lists.
inline constexpr std::string_view kSim = "sim";
// The kind of accelerators that `auto` means.
inline constexpr std::string_view kCuda = "cuda";

struct NodeSpec {
  NodeKind kind = NodeKind::host;
  std::string_view accelerator = {};  // Name of an accelerator's kind, such as "cuda"; empty for other nodes.
  bool simulated = false;             // True: it is of a simulated kind, and its memory is the host's.
  std::string name = {};  // Name such as "sim:0", "cuda:1", "host" or "disk"; "cuda" alone: all visible GPUs.
  std::optional<int> index = {};     // Index of an accelerator in its kind; none: every visible one.
  std::optional<Bytes> budget = {};  // Budget; none (not if simulated): the accelerator's memory.
  // True: a GPU that shares the host's memory; set by the caller that queried the GPU.
  bool integrated = false;
  std::string path = {};  // Directory of a disk node.
  sim::Options sim = {};  // Options of a simulated node, ready to build the accelerator from.
};

// One of the processes that torchrun started on this machine: LOCAL_RANK of LOCAL_WORLD_SIZE. They share the
// resources that no process was given alone: the visible GPUs, and host memory.
struct LocalShare {
  int rank = 0;
  int count = 1;

  // Returns the indices of this process's GPUs among `visible` ones. They are a run, of equal length for each
  // process; one GPU if there are fewer GPUs than processes.
  std::vector<int> gpus(int visible) const;
  // Returns the number of processes that share a GPU with this one, itself included.
  int sharers(int visible) const;
};

struct MachineSpec {
  // Accelerators, then host (always present, even if it was not written), then disk. With `automatic` this
  // has no accelerators yet: the caller inserts the visible GPUs before the others.
  std::vector<NodeSpec> nodes;
  bool automatic = false;
  std::optional<Bytes> automatic_budget = {};  // Budget of each automatic GPU; none: its memory.
  bool data = true;         // False: no node holds data, because INNKEEPER_SIM has data=off.
  bool host_named = false;  // True: the host's budget is the user's.
  LocalShare share = {};
};

// `host_memory`: bytes that this process may use (host_memory_limit()); budgets in it cannot be larger.
Result<MachineSpec> parse_machine(std::string_view nodes, std::string_view sim_options, Bytes host_memory,
                                  LocalShare share = {});

// Returns a simulated GPU's UUID, derived from its number; leases and CUDA_VISIBLE_DEVICES name it by this.
std::string simulated_uuid(int index);
// Returns the number in such a UUID; none if it is not one.
std::optional<int> simulated_index(std::string_view uuid);
// Returns the name of its node, as in "sim:1"; empty if it is none.
std::string simulated_node(std::string_view uuid);

// Keeps the simulated nodes whose numbers or UUIDs CUDA_VISIBLE_DEVICES lists, in the order of the list, and
// renumbers them from 0. The rules are CUDA's: the list ends at the first entry that is no node's, and a list
// with a duplicate keeps no node. So "", "-1" and the UUID of a real GPU keep no node.
void keep_listed(MachineSpec& spec, std::string_view list);

// Divides one memory between its integrated GPUs and the host: `free` bytes of it now, `memory` in all.
// Moving bytes from such a GPU to the host gains no space. The host therefore gets only a sixteenth, for
// operators there and for bytes on their way to a disk. The GPUs get four fifths of the rest. Budgets that
// the user named stay. Fails if they exceed the memory.
Status part_one_memory(MachineSpec& spec, Bytes free, Bytes memory);

// Returns LOCAL_RANK; none if it is no number from 0 on.
std::optional<int> local_rank_from_environment();
// Returns the share of these variables; the whole machine if they are missing or invalid.
LocalShare local_share_from_environment();

// Parses visibility, poison, GPU model and links; name and capacity keep their defaults.
Result<sim::Options> parse_sim_options(std::string_view text);

}  // namespace innkeeper
