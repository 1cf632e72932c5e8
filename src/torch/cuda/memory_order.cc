#include "torch/cuda/memory_order.h"

#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include <array>
#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "torch/accelerator/c10_event.h"
#include "torch/cuda/charging_allocator.h"
#include "torch/cuda/cuda_backend.h"

namespace innkeeper::torch_layer::cuda_backend {
namespace {

// A GPU that is, or was, a node. It is never removed, because memory outlives nodes.
struct Gpu {
  MemoryUsers users;
  std::optional<c10::Stream> compute;
  std::shared_ptr<DeviceHealth> health;
  std::atomic<bool> known{false};  // Whether the other members are set.
};

Gpu& gpu(c10::DeviceIndex index) {
  static auto& gpus = *new std::array<Gpu, Ledger::kGpus>;  // Leaked: memory is freed at any time.
  return gpus[static_cast<size_t>(index)];
}

Gpu* known_gpu(c10::DeviceIndex index) {
  Gpu& known = gpu(index);
  return known.known.load(std::memory_order_acquire) ? &known : nullptr;
}

void wait(const c10::Stream& stream, const Event& user) {
  if (!is_done(user)) order_after(stream, user);
}

thread_local MayUnmap* may_unmap = nullptr;

class CudaMemoryOrder final : public MemoryOrder {
 public:
  explicit CudaMemoryOrder(c10::DeviceIndex index) : index_(index), gpu_(gpu(index)) {}

  void attach(const c10::Stream& compute, std::shared_ptr<DeviceHealth> health) override {
    gpu_.compute = compute;
    gpu_.health = std::move(health);
    gpu_.known.store(true, std::memory_order_release);
  }
  c10::DataPtr allocate(size_t size, const c10::Stream& first) const override {
    const c10::StreamGuard on_stream(*gpu_.compute);
    auto* const charging = dynamic_cast<ChargingAllocator*>(caching::get());
    if (charging != nullptr && first != *gpu_.compute) return charging->allocate_for_copy(size, first);
    c10::DataPtr memory = c10::GetAllocator(c10::kCUDA)->allocate(size);
    if (first != *gpu_.compute) order_copy(index_, memory.get(), Bytes(static_cast<int64_t>(size)), first);
    return memory;
  }
  bool free_after(Memory& memory, std::span<const Event> users) const override {
    return ChargingAllocator::free_after(
        memory, [&](const void* data, Bytes size) { return gpu_.users.freed(data, size, users); });
  }
  uint64_t number() const override { return gpu_.users.number(); }
  void recorded(uint64_t number, const Event& event) const override { gpu_.users.recorded(number, event); }

 private:
  const c10::DeviceIndex index_;
  Gpu& gpu_;
};

}  // namespace

std::unique_ptr<MemoryOrder> make_memory_order(c10::DeviceIndex index) {
  return std::make_unique<CudaMemoryOrder>(index);
}

void note_freed(c10::DeviceIndex index, const void* data, Bytes size) {
  if (Gpu* const known = known_gpu(index)) known->users.freed(data, size);
}

void order_kernel(c10::DeviceIndex index, const void* data, Bytes size, const c10::Stream& stream) noexcept {
  Gpu* const known = known_gpu(index);
  if (known == nullptr) return;
  try {
    for (const Event& user : known->users.take_for_kernel(data, size)) wait(stream, user);
  } catch (const std::exception&) {
    known->health->wait_out();
  }
}

void order_copy(c10::DeviceIndex index, const void* data, Bytes size, const c10::Stream& stream) noexcept {
  Gpu& known = gpu(index);
  try {
    const MemoryUsers::Users users = known.users.take_for_copy(data, size);
    for (const Event& user : users.events) wait(stream, user);
    if (users.number == 0) return;
    const uint64_t number = known.users.number();
    const Event passed =
        std::make_shared<C10Event>(*known.compute, known.health, DeviceCall{"its work so far"});
    known.users.recorded(number, passed);
    wait(stream, passed);
  } catch (const std::exception&) {
    known.health->wait_out();
  }
}

MayUnmap::MayUnmap() : outer_(may_unmap) { may_unmap = this; }
MayUnmap::~MayUnmap() {
  if (unmapping_ != nullptr) unmapping_->end_unmapping();
  may_unmap = outer_;
}

void MayUnmap::begin() {
  Gpu* const known = known_gpu(c10::cuda::current_device());
  if (known == nullptr || may_unmap == nullptr || may_unmap->unmapping_ != nullptr) return;
  may_unmap->unmapping_ = &known->users;
  for (const Event& user : known->users.begin_unmapping()) wait(*known->compute, user);
}

// Called under the caching allocator's lock, on a GPU that has no suitable free piece.
class BeforeUnmapping final : public c10::FreeMemoryCallback {
 public:
  bool Execute() override {
    MayUnmap::begin();
    return false;  // The call has freed no memory.
  }
};

}  // namespace innkeeper::torch_layer::cuda_backend

namespace c10 {
REGISTER_FREE_MEMORY_CALLBACK(InnkeeperBeforeUnmapping, innkeeper::torch_layer::cuda_backend::BeforeUnmapping)
}  // namespace c10
