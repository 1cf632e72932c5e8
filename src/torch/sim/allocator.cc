#include "torch/sim/allocator.h"

#include <c10/core/StreamGuard.h>

#include <bit>
#include <memory>

#include "torch/accelerator/c10_event.h"
#include "torch/errors.h"
#include "torch/memory/cpu_allocator.h"
#include "torch/process/faults.h"
#include "torch/process/fork.h"
#include "torch/sim/current.h"
#include "torch/sim/guard.h"
#include "torch/sim/machine.h"

namespace innkeeper::torch_layer::sim_backend {

void Allocation::release(void* context) {
  if (is_forked_child()) return;  // The parent's memory.
  std::unique_ptr<Allocation> allocation(static_cast<Allocation*>(context));
  sim::Accelerator& accelerator = *allocation->accelerator;
  const uint64_t others = allocation->queues.load(std::memory_order_acquire);
  for (uint64_t queues = others; queues != 0; queues &= queues - 1) {
    const Event tail = accelerator.record(static_cast<sim::QueueIndex>(std::countr_zero(queues)));
    if (allocation->exact) {
      allocation->users.push_back(tail);
    } else {
      accelerator.wait(kComputeQueue, tail);
    }
  }
  if (allocation->exact) {
    accelerator.free_after(allocation->data, allocation->users);
  } else {
    accelerator.free(allocation->data);
  }
  machine().stats(allocation->index).freed(allocation->size);
  if (allocation->accountant != nullptr) allocation->accountant->uncharge(allocation->node, allocation->size);
}

c10::DataPtr allocate(c10::DeviceIndex index, size_t size, c10::Device face) {
  if (size == 0) return {nullptr, face};
  Machine::Entry& entry = machine().entry(index);
  const Bytes charged = round_up(Bytes(static_cast<int64_t>(size)));
  const DisarmedCpu disarmed;
  if (entry.accountant != nullptr) {
    if (Status status = entry.accountant->charge(entry.node, charged); !status.ok()) {
      entry.stats.failed();
      throw_no_memory(status);
    }
  }
  sim::Accelerator& accelerator = *entry.accelerator;
  Result<void*> data =
      faults::injected(faults::Fault::allocation)
          ? Status(Code::out_of_memory, faults::message("no memory on a simulated accelerator"))
          : accelerator.allocate(charged, current_queue(index));
  if (!data.ok()) {
    entry.stats.failed();
    if (entry.accountant != nullptr) entry.accountant->uncharge(entry.node, charged);
    throw_no_memory(data.status());
  }
  entry.stats.allocated(charged);
  auto allocation =
      std::make_unique<Allocation>(&accelerator, data.value(), charged, entry.accountant, entry.node, index);
  if (const sim::QueueIndex queue = current_queue(index); queue != kComputeQueue) {
    allocation->queues = uint64_t{1} << queue;
  }
  void* address = data.value();
  return {address, allocation.release(), &Allocation::release, face};
}

namespace {

class SimMemoryOrder final : public MemoryOrder {
 public:
  explicit SimMemoryOrder(std::shared_ptr<sim::Accelerator> accelerator)
      : accelerator_(std::move(accelerator)) {}

  c10::DataPtr allocate(size_t size, const c10::Stream& first) const override {
    const c10::StreamGuard on_stream(first);
    c10::DataPtr memory = device_allocator().allocate(size);
    allocation_of(memory)->queues.store(0);  // The caller that frees it names the queues that used it.
    return memory;
  }
  bool free_after(Memory& memory, std::span<const Event> users) const override {
    if (!memory.is_released_by(&Allocation::release) || is_forked_child()) return false;
    auto* const allocation = static_cast<Allocation*>(memory.take().context);
    for (const Event& user : users) {
      if (auto* const event = dynamic_cast<C10Event*>(user.get())) {
        allocation->users.push_back(event_of(event->event()));
      } else if (user != nullptr) {
        (void)user->synchronize();
      }
    }
    allocation->exact = true;
    Allocation::release(allocation);
    return true;
  }
  void set_limit(Bytes limit) const override { accelerator_->set_limit(limit); }

 private:
  const std::shared_ptr<sim::Accelerator> accelerator_;
};

class SimAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    const c10::DeviceIndex index = current_device();
    return sim_backend::allocate(index, size, c10::Device(c10::kHPU, index));
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }

  // For Allocator::clone, whose source and destination are on one accelerator.
  void copy_data(void* destination, const void* source, size_t size) const override {
    const c10::DeviceIndex index = machine().index_of(destination);
    accelerator(index).copy(current_queue(index), destination, source, size,
                            sim::Accelerator::Direction::within);
  }

  bool initialized() override { return count() > 0; }
  void emptyCache(c10::MempoolId_t) override {
    for (c10::DeviceIndex index = 0; index < count(); ++index) accelerator(index).trim();
  }
  void recordStream(const c10::DataPtr& pointer, c10::Stream stream) override {
    if (Allocation* allocation = allocation_of(pointer);
        allocation != nullptr && stream.id() != kComputeQueue) {
      allocation->queues.fetch_or(uint64_t{1} << stream.id(), std::memory_order_release);
    }
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    return machine().entry(index).stats.report();
  }
  void resetAccumulatedStats(c10::DeviceIndex index) override {
    machine().entry(index).stats.reset_accumulated();
  }
  void resetPeakStats(c10::DeviceIndex index) override { machine().entry(index).stats.reset_peak(); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    const sim::Accelerator& device = accelerator(index);
    const Bytes capacity = device.options().capacity;
    return {static_cast<size_t>((capacity - device.live()).count()), static_cast<size_t>(capacity.count())};
  }
};

}  // namespace

std::unique_ptr<MemoryOrder> make_memory_order(std::shared_ptr<sim::Accelerator> accelerator) {
  return std::make_unique<SimMemoryOrder>(std::move(accelerator));
}

c10::DeviceAllocator& device_allocator() {
  static auto& allocator = *new SimAllocator;
  return allocator;
}

}  // namespace innkeeper::torch_layer::sim_backend
