// The nodes of the runtime, started or not: those given to configure(), otherwise INNKEEPER_NODES.
//
// All functions are thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/machine.h"
#include "innkeeper/export.h"

namespace innkeeper::torch_layer {

// The setting in force, in the grammar of INNKEEPER_NODES.
std::string nodes_setting();
// Replaces the nodes given to configure(); an empty text clears them. Returns the previous text.
std::string exchange_configured_nodes(std::string nodes);

// Called when the library is loaded, for each kind of accelerator that this build has. `kind` must outlive
// the process's last call.
void add_kind_of_build(std::string_view kind);

// The machine that `nodes` and INNKEEPER_SIM describe. After follow_visible_devices(), CUDA_VISIBLE_DEVICES
// selects among its simulated nodes. Throws c10::ValueError if a text is not valid, or names an accelerator
// of a kind that this build lacks.
MachineSpec parse_nodes(const std::string& nodes);

// Names of the computing nodes, in the order of nodes(), as a start now would find them. Empty if
// CUDA_VISIBLE_DEVICES, after follow_visible_devices(), hides them all. Starts nothing, because a program may
// fork afterwards. Does not check that a named GPU exists. `visible_gpus`: number of CUDA devices that this
// process sees. All of them are nodes if the setting is `auto` or `cuda`. Throws as parse_nodes() does.
IK_EXPORT std::vector<std::string> expected_nodes(int visible_gpus);

// The setting that selects among the nodes, as the subject of a sentence; empty if there is none.
std::string who_says_which_devices();

}  // namespace innkeeper::torch_layer
