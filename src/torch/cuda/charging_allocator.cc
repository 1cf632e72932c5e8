#include "torch/cuda/charging_allocator.h"

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/ScopeExit.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>

#include "torch/cuda/memory_order.h"
#include "torch/errors.h"
#include "torch/memory/address_table.h"
#include "torch/memory/cpu_allocator.h"
#include "torch/process/fork.h"

namespace innkeeper::torch_layer::cuda_backend {
namespace {

// Each try evicts twice as much as the one before, so this number of tries covers all memory.
constexpr int kTries = 24;
// The caching allocator's own rounding, bytes.
constexpr int64_t kGranule = 512;

// Bytes of a GPU that are charged to a ledger; uncharged once. Trivial, so that the table can hold it.
struct Charge {
  Ledger* ledger = nullptr;  // Null: nothing was charged.
  c10::DeviceIndex device = 0;
  int64_t size = 0;  // 0: unknown.

  void give_back() const noexcept {
    if (ledger == nullptr) return;
    ledger->live[static_cast<size_t>(device)].fetch_sub(size, std::memory_order_relaxed);
    if (ledger->open.load(std::memory_order_acquire)) {
      ledger->accountant->uncharge(ledger->nodes[static_cast<size_t>(device)], Bytes(size));
    }
  }
};

struct Owner {
  Charge charge;
  c10::DeleterFnPtr release = nullptr;  // Null: the target's raw_delete.
};

AddressTable<Owner>& table() {
  static auto& table =
      *new AddressTable<Owner>;  // Leaked: memory is freed also after static objects are destroyed.
  return table;
}

std::atomic<caching::CUDAAllocator*> the_target{nullptr};

void release(void* data, const std::optional<Owner>& owner) {
  if (owner.has_value() && owner->release != nullptr) {
    owner->release(data);
  } else {
    the_target.load(std::memory_order_acquire)->raw_delete(data);
  }
  if (owner.has_value()) owner->charge.give_back();
}

void release_by_address(void* data) {
  if (is_forked_child()) return;  // The parent's memory; CUDA must not be called here.
  const std::optional<Owner> owner = table().take(data);
  if (owner.has_value()) note_freed(owner->charge.device, data, Bytes(owner->charge.size));
  release(data, owner);
}

void list(void* data, Owner owner) {
  // The previous owner of the address lost its memory to a pool's checkpoint.
  if (const std::optional<Owner> before = table().insert(data, owner)) before->charge.give_back();
}

c10::DataPtr listed(c10::DataPtr memory, Charge charge) {
  void* data = memory.get();
  list(data, {charge, memory.get_deleter()});
  const c10::Device device = memory.device();
  memory.release_context();
  return {data, data, &release_by_address, device};
}

void* listed(void* data, Charge charge) {
  list(data, {charge, nullptr});
  return data;
}

void* address_of(const c10::DataPtr& memory) { return memory.get(); }
void* address_of(void* memory) { return memory; }

int64_t rounded(size_t size) { return (static_cast<int64_t>(size) + kGranule - 1) / kGranule * kGranule; }

// Allocates; tries again as long as evictions free memory.
template <class Allocate>
auto try_with_relief(const Ledger& ledger, NodeId node, int64_t size, const Allocate& allocate)
    -> decltype(allocate()) {
  int64_t wanted = size;
  for (int tries = 1;; ++tries) {
    std::string failure;
    try {
      return allocate();
    } catch (const c10::OutOfMemoryError& error) {
      failure = error.what_without_backtrace();
    }
    const Status relieved = ledger.relief(node, Bytes(wanted));
    if (!relieved.ok() || tries == kTries) {
      throw_no_memory(Status(relieved.ok() ? Code::out_of_memory : relieved.code(),
                             failure + "; innkeeper evicted all it could there (" +
                                 std::to_string(tries - 1) + " times)" +
                                 (relieved.ok() ? "" : ": " + relieved.message())));
    }
    if (wanted <= INT64_MAX / 4) wanted *= 2;
  }
}

// Charges, allocates and lists memory. `order` orders it after its users. `allocate` returns a DataPtr or an
// address.
template <class Allocate, class Order>
auto charge_and_allocate(Ledger* ledger, size_t size, const Allocate& allocate, const Order& order)
    -> decltype(allocate()) {
  if (size == 0) return allocate();
  Charge charge{nullptr, c10::cuda::current_device(), rounded(size)};
  const auto call = [&] {
    const MayUnmap may_unmap;
    return allocate();
  };
  const DisarmedCpu disarmed;
  const NodeId node = ledger == nullptr ? kNoNode : ledger->nodes[static_cast<size_t>(charge.device)];
  if (node != kNoNode) {
    if (Status status = ledger->accountant->charge(node, Bytes(charge.size)); !status.ok())
      throw_no_memory(status);
    charge.ledger = ledger;
    ledger->live[static_cast<size_t>(charge.device)].fetch_add(charge.size, std::memory_order_relaxed);
  }
  auto undo = c10::make_scope_exit([&charge] { charge.give_back(); });
  auto memory = node == kNoNode ? call() : try_with_relief(*ledger, node, charge.size, call);
  if (address_of(memory) == nullptr) return memory;
  auto given = listed(std::move(memory), charge);
  undo.release();
  order(charge.device, address_of(given), Bytes(charge.size));
  return given;
}

// Orders the thread's current stream after the memory's users.
void order_current(c10::DeviceIndex device, const void* data, Bytes size) {
  order_kernel(device, data, size, c10::cuda::getCurrentCUDAStream(device).unwrap());
}

}  // namespace

void ChargingAllocator::open(Accountant* accountant, Relief relief, std::span<const NodeId> nodes) {
  close();
  the_target.store(&target_, std::memory_order_release);
  auto* ledger = new Ledger;  // Never freed: see ledger_.
  ledger->accountant = accountant;
  ledger->relief = std::move(relief);
  ledger->nodes.fill(kNoNode);
  std::copy(nodes.begin(), nodes.end(), ledger->nodes.begin());
  ledger_.store(ledger, std::memory_order_release);
}

void ChargingAllocator::close() {
  if (Ledger* ledger = ledger_.exchange(nullptr, std::memory_order_acq_rel)) {
    ledger->open.store(false, std::memory_order_release);
  }
}

Bytes ChargingAllocator::live(c10::DeviceIndex device) const {
  const Ledger* ledger = ledger_.load(std::memory_order_acquire);
  return Bytes(ledger == nullptr ? 0
                                 : ledger->live[static_cast<size_t>(device)].load(std::memory_order_relaxed));
}

// Null while a graph is captured.
Ledger* ChargingAllocator::ledger() const {
  if (captures_.load(std::memory_order_acquire) != 0) [[unlikely]]
    return nullptr;
  return ledger_.load(std::memory_order_acquire);
}

void ChargingAllocator::emptyCache(c10::MempoolId_t pool) {
  const c10::DeviceIndex gpus = captures_.load() == 0 ? c10::cuda::device_count() : c10::DeviceIndex{0};
  for (c10::DeviceIndex index = 0; index < gpus; ++index) {
    if (!c10::cuda::hasPrimaryContext(index)) continue;
    const c10::cuda::CUDAGuard on_gpu(index);
    if (cudaDeviceSynchronize() != cudaSuccess) (void)cudaGetLastError();  // A lost GPU's error.
  }
  target_.emptyCache(pool);
}

c10::DataPtr ChargingAllocator::allocate(size_t size) {
  return charge_and_allocate(
      ledger(), size, [&] { return target_.allocate(size); }, &order_current);
}

c10::DataPtr ChargingAllocator::allocate_for_copy(size_t size, const c10::Stream& first) {
  return charge_and_allocate(
      ledger(), size, [&] { return target_.allocate(size); },
      [&](c10::DeviceIndex device, const void* data, Bytes charged) {
        order_copy(device, data, charged, first);
      });
}

bool ChargingAllocator::free_after(Memory& memory,
                                   const std::function<bool(const void* data, Bytes size)>& note) {
  if (!memory.is_released_by(&release_by_address) || is_forked_child()) return false;
  const std::optional<Owner> owner = table().find(memory.data());
  if (!owner.has_value() || !note(memory.data(), Bytes(owner->charge.size))) return false;
  void* const data = memory.take().context;
  release(data, table().take(data));
  return true;
}

c10::DeleterFnPtr ChargingAllocator::raw_deleter() const { return &release_by_address; }

void* ChargingAllocator::raw_alloc(size_t size) {
  return charge_and_allocate(
      ledger(), size, [&] { return target_.raw_alloc(size); }, &order_current);
}

void* ChargingAllocator::raw_alloc_with_stream(size_t size, cudaStream_t stream) {
  return charge_and_allocate(
      ledger(), size, [&] { return target_.raw_alloc_with_stream(size, stream); },
      [&](c10::DeviceIndex device, const void* data, Bytes charged) {
        order_kernel(device, data, charged, c10::cuda::getStreamFromExternal(stream, device).unwrap());
      });
}

void ChargingAllocator::raw_delete(void* data) { release_by_address(data); }

void ChargingAllocator::recordStream(const c10::DataPtr& memory, c10::cuda::CUDAStream stream) {
  if (memory.get_deleter() != &release_by_address) return target_.recordStream(memory, stream);
  c10::DataPtr theirs(memory.get(), memory.get(), target_.raw_deleter(), memory.device());
  const auto keep = c10::make_scope_exit([&theirs] { theirs.release_context(); });
  target_.recordStream(theirs, stream);
}

// Memory that a pool's checkpoint takes away is freed without its deleter; memory that it restores has the
// target's deleter.
caching::CheckpointDelta ChargingAllocator::setCheckpointPoolState(
    c10::DeviceIndex device, std::shared_ptr<caching::AllocatorState> state) {
  caching::CheckpointDelta delta = target_.setCheckpointPoolState(device, std::move(state));
  for (void* data : delta.ptrs_freed) {
    if (const std::optional<Owner> owner = table().take(data)) owner->charge.give_back();
  }
  for (c10::DataPtr& memory : delta.dataptrs_allocd) {
    if (memory.get() != nullptr) memory = listed(std::move(memory), Charge{nullptr, device, 0});
  }
  return delta;
}

#if INNKEEPER_TORCH_AT_LEAST(2, 13)
c10::DataPtr ChargingAllocator::allocateWithAddress(size_t size, void* address) {
  return charge_and_allocate(
      ledger(), size, [&] { return target_.allocateWithAddress(size, address); }, &order_current);
}
void ChargingAllocator::markCaptureBegin(c10::DeviceIndex device) {
  target_.markCaptureBegin(device);
  captures_.fetch_add(1, std::memory_order_acq_rel);
}
void ChargingAllocator::markCaptureEnd(c10::DeviceIndex device) {
  captures_.fetch_sub(1, std::memory_order_acq_rel);
  target_.markCaptureEnd(device);
}
#else
void ChargingAllocator::beginAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                                            std::function<bool(cudaStream_t)> filter) {
  target_.beginAllocateToPool(device, pool, std::move(filter));
  captures_.fetch_add(1, std::memory_order_acq_rel);
}
void ChargingAllocator::endAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool) {
  captures_.fetch_sub(1, std::memory_order_acq_rel);
  target_.endAllocateToPool(device, pool);
}
#endif

}  // namespace innkeeper::torch_layer::cuda_backend
