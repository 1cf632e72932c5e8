#include "torch/sim/machine.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace innkeeper::torch_layer::sim_backend {

void AllocatorStats::allocated(Bytes size) {
  MutexLock lock(mutex_);
  bytes_.increase(static_cast<size_t>(size.count()));
  pieces_.increase(1);
}

void AllocatorStats::freed(Bytes size) {
  MutexLock lock(mutex_);
  bytes_.decrease(static_cast<size_t>(size.count()));
  pieces_.decrease(1);
}

void AllocatorStats::failed() {
  MutexLock lock(mutex_);
  ++failures_;
}

c10::CachingDeviceAllocator::DeviceStats AllocatorStats::report() {
  MutexLock lock(mutex_);
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  c10::CachingDeviceAllocator::DeviceStats stats;
  stats.allocated_bytes[kAll] = stats.active_bytes[kAll] = bytes_;
  stats.reserved_bytes[kAll] = stats.requested_bytes[kAll] = bytes_;
  stats.allocation[kAll] = stats.active[kAll] = pieces_;
  stats.num_ooms = failures_;
  stats.num_device_alloc = pieces_.allocated;
  stats.num_device_free = pieces_.freed;
  return stats;
}

void AllocatorStats::reset_accumulated() {
  MutexLock lock(mutex_);
  bytes_.reset_accumulated();
  pieces_.reset_accumulated();
  failures_ = 0;
}

void AllocatorStats::reset_peak() {
  MutexLock lock(mutex_);
  bytes_.reset_peak();
  pieces_.reset_peak();
}

Machine::Entry& Machine::entry(c10::DeviceIndex index) {
  TORCH_CHECK(index >= 0 && index < count(),
              "there is no simulated accelerator hpu:", static_cast<int>(index), ": ",
              static_cast<int>(count()), " are configured");
  return entries_[static_cast<size_t>(index)];
}

c10::DeviceIndex Machine::index_of(const void* data) const {
  for (c10::DeviceIndex index = 0; index < count(); ++index) {
    if (entries_[static_cast<size_t>(index)].accelerator->contains(data)) return index;
  }
  TORCH_CHECK(false, "the address ", data, " is not in any simulated accelerator's memory");
}

void Machine::replace(std::vector<std::shared_ptr<sim::Accelerator>> accelerators, Accountant* accountant,
                      std::span<const NodeId> nodes) {
  TORCH_CHECK(accelerators.size() <= kMaxNodes, "at most ", kMaxNodes, " simulated accelerators, not ",
              accelerators.size());
  TORCH_CHECK(accountant == nullptr || nodes.size() == accelerators.size(),
              "each simulated accelerator needs a node");
  for (c10::DeviceIndex index = 0; index < count(); ++index) {
    const Bytes live = entry(index).accelerator->live();
    TORCH_CHECK(live.count() == 0, "hpu:", static_cast<int>(index), " still has ", to_string(live), " alive");
  }
  count_.store(0, std::memory_order_release);
  has_data_.store(std::all_of(accelerators.begin(), accelerators.end(),
                              [](const auto& accelerator) { return accelerator->options().data; }),
                  std::memory_order_relaxed);
  for (size_t i = 0; i < kMaxNodes; ++i) {
    Entry& entry = entries_[i];
    entry.accelerator = i < accelerators.size() ? std::move(accelerators[i]) : nullptr;
    entry.accountant = accountant;
    entry.node = i < nodes.size() ? nodes[i] : kNoNode;
    entry.stats.reset_accumulated();
    entry.stats.reset_peak();
    entry.next_fast_stream = entry.next_stream = 0;
    if (entry.accelerator == nullptr) continue;
    entry.first_stream = entry.accelerator->create_queue();
    for (uint32_t made = 1; made < kPlainStreams; ++made) entry.accelerator->create_queue();
  }
  count_.store(static_cast<c10::DeviceIndex>(accelerators.size()), std::memory_order_release);
}

Machine& machine() {
  static auto& machine = *new Machine;
  return machine;
}

bool has_data() noexcept { return machine().has_data(); }
c10::DeviceIndex count() noexcept { return machine().count(); }
sim::Accelerator& accelerator(c10::DeviceIndex index) { return *machine().entry(index).accelerator; }
std::shared_ptr<sim::Accelerator> shared_accelerator(c10::DeviceIndex index) {
  return machine().entry(index).accelerator;
}

}  // namespace innkeeper::torch_layer::sim_backend
