#include "torch/memory/device_index.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "config/machine.h"
#include "innkeeper/torch/runtime.h"
#include "torch/memory/handle.h"
#include "torch/process/nodes_setting.h"
#include "torch/process/runtime_state.h"

namespace innkeeper::torch_layer {
namespace detail {

std::atomic<bool> device_per_node{false};
constinit thread_local c10::DeviceIndex current_index = 0;

}  // namespace detail

namespace {

std::atomic<int> visible{0};         // Number of GPUs when the program got a device per node.
std::atomic<int> expected_count{0};  // Number of devices before the runtime's start; 0: not known yet.

int count_expected() noexcept {
  int count = expected_count.load(std::memory_order_relaxed);
  if (count > 0) return count;
  try {
    count = static_cast<int>(expected_nodes(visible.load()).size());
  } catch (const std::exception&) {
    return 1;  // The start of the runtime will report the invalid setting.
  }
  expected_count.store(std::max(count, 1), std::memory_order_relaxed);
  return std::max(count, 1);
}

int count() noexcept {
  if (!has_device_per_node()) return 1;
  if (Runtime* started = runtime_if_started())
    return static_cast<int>(started->engine().computing_nodes().size());
  return count_expected();
}

}  // namespace

int local_rank() {
  static const int rank = local_rank_from_environment().value_or(-1);
  return rank;
}

void use_device_per_node(int visible_gpus) {
  visible.store(visible_gpus);
  detail::device_per_node.store(true);
}

c10::DeviceIndex device_count() { return static_cast<c10::DeviceIndex>(count()); }

c10::DeviceIndex index_limit() noexcept {
  if (!has_device_per_node()) return 1;
  return static_cast<c10::DeviceIndex>(std::max(count(), local_rank() + 1));
}

void forget_device_count() {
  expected_count.store(0);
  detail::current_index = 0;  // The current device may no longer exist.
}

void check_device_index(c10::DeviceIndex index) {
  if (index <= 0) return;
  if (has_device_per_node()) {
    const size_t devices = runtime().engine().computing_nodes().size();
    if (index < index_limit()) return;
    const std::string who = who_says_which_devices();
    TORCH_CHECK(false, "CUDA error: invalid device ordinal: ", device_at(index), ", and there ",
                devices == 1 ? "is 1 device" : "are " + std::to_string(devices) + " devices",
                who.empty() ? ". INNKEEPER_NODES=sim:" + std::to_string(index + 1) + "x8GiB gives " +
                                  std::to_string(index + 1) + ", simulated"
                            : ", as " + who + " has it");
  }
  TORCH_CHECK(index == local_rank(),
              "there is one managed device, managed:0, and no managed:", static_cast<int>(index),
              ": write \"managed\". All nodes are in it; to place by hand use innkeeper.on(node), and under "
              "torchrun LOCAL_RANK is the process's home");
}

void check_expected_index(c10::DeviceIndex index) {
  if (index >= index_limit()) check_device_index(index);
}

c10::DeviceIndex index_of(const std::optional<c10::Device>& device) {
  if (!device.has_value()) {
    if (has_device_per_node() && current_index() >= index_limit()) [[unlikely]]
      detail::current_index = 0;  // Another thread has called configure() since.
    return current_index();
  }
  check_device_index(device->index());
  return resolved_index(device->index());
}

c10::Device device_at(c10::DeviceIndex index) { return {kManagedType, index}; }

NodeId node_at(c10::DeviceIndex index) {
  if (!has_device_per_node()) [[likely]]
    return kNoNode;
  const auto& computing = runtime().engine().computing_nodes();
  return computing[static_cast<size_t>(index) % computing.size()];
}

c10::DeviceIndex index_of_node(NodeId node) {
  if (!has_device_per_node()) return 0;
  const auto& computing = runtime().engine().computing_nodes();
  const auto found = std::find(computing.begin(), computing.end(), node);
  return found == computing.end() ? c10::DeviceIndex{0}
                                  : static_cast<c10::DeviceIndex>(found - computing.begin());
}

}  // namespace innkeeper::torch_layer
