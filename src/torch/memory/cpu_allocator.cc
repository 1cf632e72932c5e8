#include "torch/memory/cpu_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <utility>

#include "base/check.h"
#include "torch/errors.h"
#include "torch/memory/address_table.h"
#include "torch/memory/of_thread.h"
#include "torch/process/faults.h"

namespace innkeeper::torch_layer {
namespace {

thread_local const ArmedCpu* armed = nullptr;

std::array<std::atomic<int64_t>, kMaxNodes> charged_bytes{};

// Context and deleter of a charged piece of memory before it was listed.
struct Owner {
  void* context = nullptr;
  c10::DeleterFnPtr release = nullptr;
};
using Table = AddressTable<Owner>;

Table& table() {
  static auto& table = *new Table;  // Leaked: memory is freed also after static objects are destroyed.
  return table;
}

// The charge of a piece of host memory; it stands right before the bytes.
struct HostCharge {
  uintptr_t mark;       // Result of mark_of() while the piece is charged.
  c10::DataPtr memory;  // Memory of this charge and of the bytes.
  Accountant* accountant;
  Bytes size;
  NodeId node;
};
constexpr size_t kBefore = 64;  // Bytes before the data; a multiple of kAlignment keeps the data aligned.
static_assert(sizeof(HostCharge) <= kBefore);
constexpr uintptr_t kPage = 4096;

uintptr_t mark_of(const HostCharge* charge) {
  return reinterpret_cast<uintptr_t>(charge) ^ 0xC4A96ED5B7E15163u;
}

// The charge before the bytes; null if there is none. A caller that frees raw memory passes only its address.
// Charged bytes begin at least kBefore bytes after the begin of a page, so it is safe to read there for other
// memory as well. The address sanitizer does not know this. The function reads by the builtin, because
// compilers instrument functions of atomic_ref wherever they do not inline them.
__attribute__((no_sanitize("address", "thread"))) HostCharge* charge_before(void* data) {
  if (reinterpret_cast<uintptr_t>(data) % kPage < kBefore) return nullptr;
  auto* charge = reinterpret_cast<HostCharge*>(static_cast<std::byte*>(data) - kBefore);
  return __atomic_load_n(&charge->mark, __ATOMIC_RELAXED) == mark_of(charge) ? charge : nullptr;
}

void free_piece(HostCharge* charge) {
  c10::DataPtr memory = std::move(charge->memory);
  charge->~HostCharge();
  memory.clear();
}

// Small pieces that the thread has freed, for its next allocations of their size. To get aligned memory is
// most of the cost of a small tensor, and most tensors have the size of one that was just freed. These pieces
// are not charged.
class SparePieces {
 public:
  SparePieces() = default;
  ~SparePieces() {
    for (Class& kept : classes_) {
      while (kept.count != 0) free_piece(kept.pieces[--kept.count]);
    }
  }
  SparePieces(const SparePieces&) = delete;
  SparePieces& operator=(const SparePieces&) = delete;

  // Null if there is no piece of exactly that size.
  static HostCharge* take(Bytes size) {
    Class* const kept = class_of(size);
    return kept == nullptr || kept->count == 0 ? nullptr : kept->pieces[--kept->count];
  }
  // False if it does not keep the piece.
  static bool keep(HostCharge* piece, Bytes size) {
    Class* const kept = class_of(size);
    if (kept == nullptr || kept->count == kEach) return false;
    kept->pieces[kept->count++] = piece;
    return true;
  }

 private:
#if C10_ASAN_ENABLED
  static constexpr size_t kClasses = 0;  // The address sanitizer must see uses after the free.
#else
  static constexpr size_t kClasses = 64;  // Up to 4 KiB: half a megabyte for each thread.
#endif
  static constexpr size_t kEach = 4;
  struct Class {
    std::array<HostCharge*, kEach> pieces;
    size_t count = 0;
  };

  // `size`: a multiple of kAlignment, not 0. Null for sizes that are not kept.
  static Class* class_of(Bytes size) {
    const size_t index = static_cast<size_t>(size.count()) / kAlignment - 1;
    if (index >= kClasses) return nullptr;
    SparePieces* const pieces = OfThread<SparePieces>::get();
    return pieces == nullptr ? nullptr : &pieces->classes_[index];
  }

  std::array<Class, kClasses> classes_;
};

// The deleter of charged host memory.
void release_host_charge(void* data) {
  HostCharge* const charge = charge_before(data);
  IK_CHECK(charge != nullptr, "charged memory has its charge before it");
  std::atomic_ref(charge->mark).store(0, std::memory_order_relaxed);  // A later charge_before() reads it.
  charged_bytes[index_of(charge->node)].fetch_sub(charge->size.count(), std::memory_order_relaxed);
  Accountant* const accountant = charge->accountant;
  const NodeId node = charge->node;
  const Bytes size = charge->size;
  // Before uncharge(), which reports the free space to other threads.
  if (!SparePieces::keep(charge, size)) free_piece(charge);
  accountant->uncharge(node, size);
}

c10::DeleterFnPtr original_raw_deleter = nullptr;

// Frees a charged piece, or one that an unarmed thread allocated raw.
void release_by_address(void* data) {
  if (charge_before(data) != nullptr) return release_host_charge(data);
  if (const std::optional<Owner> owner = table().take(data)) return owner->release(owner->context);
  original_raw_deleter(data);
}

c10::DataPtr listed(c10::DataPtr memory) {
  void* data = memory.get();
  if (data == nullptr) return memory;
  const c10::Device device = memory.device();
  const c10::DeleterFnPtr release = memory.get_deleter();
  table().insert(data, {memory.release_context(), release});
  return {data, data, &release_by_address, device};
}

// A piece that is not charged yet.
HostCharge* new_piece(c10::Allocator& original, size_t size) {
  c10::DataPtr memory = original.allocate(size + 2 * kBefore);
  auto* data = static_cast<std::byte*>(memory.get()) + kBefore;
  if (reinterpret_cast<uintptr_t>(data) % kPage < kBefore) data += kBefore;
  return new (data - kBefore) HostCharge{0, std::move(memory), nullptr, Bytes(0), kNoNode};
}

c10::DataPtr allocate_host(c10::Allocator& original, Accountant* accountant, NodeId node, size_t size) {
  // PyTorch's own allocator reports such a size.
  const bool absurd = size > static_cast<size_t>(INT64_MAX) - 2 * kBefore;
  if (accountant == nullptr || size == 0 || absurd) return original.allocate(size);
  const Bytes charged = round_up(Bytes(static_cast<int64_t>(size)));
  const DisarmedCpu disarmed;
  if (Status status = accountant->charge(node, charged); !status.ok()) throw_no_memory(status);
  HostCharge* charge = nullptr;
  try {
    if (faults::injected(faults::Fault::allocation)) {
      throw_no_memory(Status(Code::out_of_memory, faults::message("no memory for a kernel on the host")));
    }
    charge = SparePieces::take(charged);
    if (charge == nullptr) charge = new_piece(original, static_cast<size_t>(charged.count()));
  } catch (...) {
    accountant->uncharge(node, charged);
    throw;
  }
  charged_bytes[index_of(node)].fetch_add(charged.count(), std::memory_order_relaxed);
  charge->accountant = accountant;
  charge->size = charged;
  charge->node = node;
  std::atomic_ref(charge->mark).store(mark_of(charge), std::memory_order_relaxed);
  std::byte* const data = reinterpret_cast<std::byte*>(charge) + kBefore;
  return {data, data, &release_host_charge, c10::Device(c10::kCPU)};
}

}  // namespace

Bytes charged_host_memory(NodeId node) {
  return Bytes(charged_bytes[index_of(node)].load(std::memory_order_relaxed));
}

class CpuAllocator final : public c10::Allocator {
 public:
  explicit CpuAllocator(c10::Allocator* original) : original_(original) {}

  c10::DataPtr allocate(size_t size) override {
    const ArmedCpu* target = armed;
    if (C10_LIKELY(target == nullptr)) return original_->allocate(size);
    if (target->source_ == nullptr)
      return allocate_host(*original_, target->accountant_, target->node_, size);
    return listed(target->source_(target->accelerator_, size));
  }
  // Used by raw_deallocate alone: memory that allocate() returned to an unarmed thread has the original
  // deleter.
  c10::DeleterFnPtr raw_deleter() const override {
    return original_raw_deleter == nullptr ? nullptr : &release_by_address;
  }
  void copy_data(void* destination, const void* source, size_t size) const override {
    default_copy_data(destination, source, size);
  }

 private:
  c10::Allocator* const original_;
};

void install_cpu_allocator() {
  static std::once_flag once;
  std::call_once(once, [] {
    c10::Allocator* original = c10::GetCPUAllocator();
    original_raw_deleter = original->raw_deleter();
    c10::SetCPUAllocator(new CpuAllocator(original), /*priority=*/100);
  });
}

c10::DataPtr unlisted(c10::DataPtr memory) {
  if (memory.get_deleter() != &release_by_address) return memory;
  const std::optional<Owner> owner = table().take(memory.get());
  IK_CHECK(owner.has_value(), "charged memory is not in its table");
  void* data = memory.get();
  const c10::Device device = memory.device();
  memory.release_context();
  return {data, owner->context, owner->release, device};
}

ArmedCpu::ArmedCpu(Source source, c10::DeviceIndex accelerator)
    : source_(source), accelerator_(accelerator), accountant_(nullptr), node_(kNoNode), outer_(armed) {
  armed = this;
}
ArmedCpu::ArmedCpu(Accountant* accountant, NodeId node)
    : source_(nullptr), accelerator_(-1), accountant_(accountant), node_(node), outer_(armed) {
  armed = this;
}
ArmedCpu::~ArmedCpu() { armed = outer_; }

DisarmedCpu::DisarmedCpu() : outer_(armed) { armed = nullptr; }
DisarmedCpu::~DisarmedCpu() { armed = outer_; }

}  // namespace innkeeper::torch_layer
