#include "torch/process/nodes_setting.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <set>
#include <string_view>
#include <utility>

#include "base/thread_annotations.h"
#include "config/accelerator_kinds.h"
#include "config/text.h"
#include "device/host.h"
#include "innkeeper/torch/runtime.h"
#include "torch/errors.h"
#include "torch/process/fork.h"

namespace innkeeper::torch_layer {
namespace {

std::atomic<bool> visible_devices_followed{false};

struct Configured {
  Configured() { take_at_fork(mutex); }  // A child of fork() may ask for its nodes.
  Mutex mutex;
  std::string nodes IK_GUARDED_BY(mutex);
};

Configured& configured() {
  static auto& it = *new Configured;
  return it;
}

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

// CUDA_VISIBLE_DEVICES if it has an effect here; null if it is not set. A list of simulated GPUs' UUIDs was
// made by Innkeeper's choice or lease, and always has an effect.
const char* visible_list() {
  const char* const list = std::getenv("CUDA_VISIBLE_DEVICES");
  if (list == nullptr || visible_devices_followed.load()) return list;
  const std::vector<std::string_view> items = split_items(list);
  return !items.empty() && simulated_index(items.front()) ? list : nullptr;
}

// Refuses simulated GPUs outside of the job's lease, even if the job changes CUDA_VISIBLE_DEVICES later,
// because another job may have leased them. Nodes that the job configures itself are not part of any lease.
void refuse_what_is_not_leased(const MachineSpec& spec) {
  const std::string leased = from_environment("INNKEEPER_LEASE_GPUS");
  const std::vector<std::string_view> uuids = split_items(leased);
  if (uuids.empty() || !simulated_index(uuids.front())) return;
  std::string others;
  for (const NodeSpec& node : spec.nodes) {
    if (node.accelerator != kSim) continue;
    const bool is_leased = std::any_of(
        uuids.begin(), uuids.end(), [&](std::string_view uuid) { return simulated_node(uuid) == node.name; });
    if (!is_leased) others += (others.empty() ? "" : ", ") + node.name;
  }
  if (others.empty()) return;
  const char* const list = std::getenv("CUDA_VISIBLE_DEVICES");
  throw_status(
      Status(Code::invalid_argument,
             "the lease " + from_environment("INNKEEPER_LEASE") + ", in which this runs, holds " + leased +
                 "; " +
                 (list == nullptr ? "without CUDA_VISIBLE_DEVICES"
                                  : "with CUDA_VISIBLE_DEVICES=" + in_quotes(list)) +
                 " this process would use " + others +
                 ": leave the variable as it was set for the lease, or name a GPU of the lease by its UUID"),
      "");
}

// Written while the library is loaded, before other threads use it.
std::vector<std::string_view>& kinds_of_build() {
  static auto& kinds = *new std::vector<std::string_view>;
  return kinds;
}

void refuse_what_the_build_lacks(const NodeSpec& node) {
  if (node.kind != NodeKind::accelerator) return;
  if (std::ranges::find(kinds_of_build(), node.accelerator) != kinds_of_build().end()) return;
  const auto& kind = *std::ranges::find(kAcceleratorKinds, node.accelerator, &AcceleratorKind::name);
  throw_status(Status(Code::invalid_argument, in_quotes(node.name) + ": this build has no " +
                                                  std::string(kind.library) +
                                                  "; simulated GPUs work everywhere, as in sim:2x64MiB"),
               "INNKEEPER_NODES");
}

// CUDA sees no device at all if the list names one twice.
bool lists_device_0_first(std::string_view list) {
  const std::vector<std::string_view> items = split_items(list);
  const std::set<std::string_view> different(items.begin(), items.end());
  return !items.empty() && items.front() == "0" && different.size() == items.size();
}

}  // namespace

std::string nodes_setting() {
  Configured& by_program = configured();
  {
    MutexLock lock(by_program.mutex);
    if (!by_program.nodes.empty()) return by_program.nodes;
  }
  return from_environment("INNKEEPER_NODES");
}

std::string exchange_configured_nodes(std::string nodes) {
  Configured& by_program = configured();
  MutexLock lock(by_program.mutex);
  return std::exchange(by_program.nodes, std::move(nodes));
}

void add_kind_of_build(std::string_view kind) { kinds_of_build().push_back(kind); }

MachineSpec parse_nodes(const std::string& nodes) {
  Result<MachineSpec> spec = parse_machine(nodes, from_environment("INNKEEPER_SIM"), host_memory_limit(),
                                           local_share_from_environment());
  if (!spec.ok()) throw_status(spec.status(), "");  // The message begins with the setting's name.
  for (const NodeSpec& node : spec.value().nodes) refuse_what_the_build_lacks(node);
  if (const char* list = visible_list(); list != nullptr) keep_listed(spec.value(), list);
  if (nodes == from_environment("INNKEEPER_NODES")) refuse_what_is_not_leased(spec.value());
  return std::move(spec).value();
}

std::vector<std::string> expected_nodes(int visible_gpus) {
  const MachineSpec spec = parse_nodes(nodes_setting());
  std::vector<std::string> names;
  const auto add_visible = [&](const std::string& kind) {
    for (const int index : spec.share.gpus(visible_gpus)) names.push_back(kind + ":" + std::to_string(index));
  };
  if (spec.automatic) add_visible(std::string(kCuda));
  for (const NodeSpec& node : spec.nodes) {
    if (node.kind != NodeKind::accelerator) continue;
    if (node.index) {
      names.push_back(node.name);
    } else {
      add_visible(node.name);
    }
  }
  if (!names.empty()) return names;
  // The host is device 0 if there is no other node.
  const char* const list = visible_list();
  if (list == nullptr || lists_device_0_first(list)) names.emplace_back("host");
  return names;
}

std::string who_says_which_devices() {
  const char* const list = visible_list();
  if (list == nullptr) return "";
  const std::string lease = from_environment("INNKEEPER_LEASE");
  return lease.empty() ? "CUDA_VISIBLE_DEVICES=" + in_quotes(list)
                       : "the lease " + lease + ", in which this runs,";
}

// ---------------------------------------------------------------- runtime.h

void follow_visible_devices() { visible_devices_followed.store(true); }

}  // namespace innkeeper::torch_layer
