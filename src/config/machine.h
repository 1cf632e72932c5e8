// The nodes of a managed device as the user writes them: INNKEEPER_NODES, or configure(nodes=...).
//
//   nodes := item {"," item}     empty text is `auto`
//   item  := auto[:SIZE]         the visible GPUs, if any, then host; only a disk may stand beside it
//          | cuda[:INDEX][:SIZE] all visible GPUs, or one; SIZE is each one's budget (default: all)
//          | sim:[COUNTx]SIZE    COUNT simulated accelerators of SIZE each, numbered from 0 on
//          | host[:SIZE]         host memory (default: 4/5 of what the simulated nodes leave)
//          | disk:FOLDER:SIZE    a spill file in FOLDER, whose name may hold ':' but not ','
//
// and the simulator's options, INNKEEPER_SIM:
//
//   options := option {"," option}
//   option  := late | early | random[:SEED] | poison=on | poison=off | data=on | data=off
//            | card=NAME | link=NAME | peer=NAME
//
// `early` alone also means poison=off: the cheap simulator, for everything but hunting missing waits.
// `data=off`: the nodes hold no bytes, so they may be larger than this machine; sim nodes and host alone.
//
// Nothing is opened or allocated here. Each failure is one line: what was read, what was expected, with an
// example.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "sim/accelerator.h"

namespace innkeeper {

enum class NodeMake : uint8_t { sim, cuda, host, disk };

struct NodeSpec {
  NodeMake make = NodeMake::host;
  std::string name = {};          // "sim:0", "cuda:1", "host", "disk"; "cuda" alone for all that are visible
  std::optional<int> index = {};  // of a sim or cuda node; none: every visible GPU
  std::optional<Bytes> budget = {};  // none (cuda only): what the card has
  bool integrated = false;           // cuda: its memory is the host's, told by who asked the card
  std::string path = {};             // disk: the folder
  sim::Options sim = {};             // sim: ready to build the accelerator from
};

// A process among those that torchrun started on this machine: LOCAL_RANK of LOCAL_WORLD_SIZE. What nobody
// gave to one of them they share: the visible cards, and host memory.
struct LocalShare {
  int rank = 0;
  int count = 1;

  // Which of so many visible cards are this process's: a run of them, as many for each; one where there are
  // fewer cards than processes.
  std::vector<int> cards(int visible) const;
  // How many processes have a card that is this process's.
  int sharers(int visible) const;
};

struct MachineSpec {
  // Accelerators, then host (always there, also when it was not written), then disk. With `automatic` this
  // has no accelerators yet: the caller puts the visible GPUs before the others.
  std::vector<NodeSpec> nodes;
  bool automatic = false;
  std::optional<Bytes> automatic_budget = {};  // of each of those
  bool data = true;                            // false: no node holds any, INNKEEPER_SIM has data=off
  bool host_named = false;                     // its budget is the user's
  LocalShare share = {};
};

// `host_memory`: what this process may use (host_memory_limit()); budgets in it cannot be larger.
Result<MachineSpec> parse_machine(std::string_view nodes, std::string_view sim_options, Bytes host_memory,
                                  LocalShare share = {});

// A simulated GPU's UUID, made up from its number: what leases and CUDA_VISIBLE_DEVICES name it by.
std::string simulated_uuid(int index);
// The number in such a UUID; none if it is not one.
std::optional<int> simulated_index(std::string_view uuid);
// The name of its node, as in "sim:1"; empty if it is none.
std::string simulated_node(std::string_view uuid);

// Keeps the simulated nodes whose numbers or UUIDs CUDA_VISIBLE_DEVICES lists, in the order of the list, and
// renumbers them from 0. The rules are CUDA's: the list ends at the first entry that is no node's, and a list
// with a duplicate keeps no node. So "", "-1" and the UUID of a real card keep no node.
void keep_listed(MachineSpec& spec, std::string_view list);

// Parts one memory between its integrated cards and the host: `free` bytes of it now, `memory` in all.
// Nothing is gained by moving bytes from such a card to the host, so the host keeps a sixteenth, for what
// runs there and for what is on its way to a disk, and the cards four fifths of the rest; what the user
// named stays. Fails if that is more than there is.
Status part_one_memory(MachineSpec& spec, Bytes free, Bytes memory);

// LOCAL_RANK; none where it says no number from 0 on.
std::optional<int> local_rank_from_environment();
// Alone where the variables say nothing, or nothing that can be.
LocalShare local_share_from_environment();

// Visibility, poison, card and links; name and capacity are left as they are by default.
Result<sim::Options> parse_sim_options(std::string_view text);

}  // namespace innkeeper
