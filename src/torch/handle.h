// A handle: the storage of a managed tensor. Its DataPtr's context is the engine's Block; its data pointer is
// a reserved address that nothing may touch (decision 1), so identity, aliasing and hashing work and a stray
// dereference traps.
//
// A managed tensor is a plain TensorImpl on DispatchKey::PrivateUse1 over such a storage. The block lives as
// long as the storage does.
//
// Thread safety: as PyTorch's storages.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include "residency/block.h"
#include "residency/engine.h"
#include "torch/real_views.h"

namespace innkeeper::torch_layer {

inline constexpr c10::DeviceType kManagedType = c10::DeviceType::PrivateUse1;
inline constexpr c10::DispatchKey kManagedKey = c10::DispatchKey::PrivateUse1;
inline c10::Device managed_device() { return {kManagedType, 0}; }

inline bool is_managed(const at::Tensor& x) {
  return x.defined() && x.unsafeGetTensorImpl()->device_type() == kManagedType;
}

// The allocator of handles: creates a block without any replica, so it costs no memory of any node (I1).
c10::Allocator* handle_allocator();

// The block behind a managed storage.
Block* block_of(const c10::StorageImpl& storage);
inline Block* block_of(const at::Tensor& x) {
  return block_of(*x.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
}

// A new managed storage over a new block of `size` bytes, with no replica.
c10::intrusive_ptr<c10::StorageImpl> make_handle(Bytes size);

// The storage's block was resized to `size`: gives it an address range that is long enough.
void resize_handle(c10::StorageImpl& storage, Bytes size);

// What the torch layer keeps with a block: the real storage on each node where it ever was, for the block's
// life, and tensors over it. Evicting takes the data pointer out of it, fetching puts the new one in (design,
// section 6).
struct Attachment {
  struct Real {
    std::atomic<c10::StorageImpl*> storage{nullptr};  // an owned reference
    RealViews views;
  };

  void* address = nullptr;
  size_t reserved = 0;
  std::unique_ptr<Real[]> real;  // indexed by node

  explicit Attachment(size_t nodes) : real(std::make_unique<Real[]>(nodes)) {}
};
inline Attachment& attachment_of(const Block& block) { return *static_cast<Attachment*>(block.attachment); }

}  // namespace innkeeper::torch_layer
