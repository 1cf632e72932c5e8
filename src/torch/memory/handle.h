// A handle: the storage of a managed tensor. Its DataPtr's context is the engine's Block; its data pointer is
// a reserved address that nothing may touch, so identity, aliasing and hashing work and a stray
// dereference traps.
//
// A managed tensor is a plain TensorImpl on DispatchKey::PrivateUse1 over such a storage. The block lives as
// long as the storage does.
//
// A storage may also borrow a block: PyTorch makes one over an address alone (at::from_blob) to read and
// write the old format of its files, which pickle uses, for DLPack and for slices of storages. The address
// leads to the block. Who lends must keep it alive, as on any device.
//
// Thread safety: as PyTorch's storages.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include "base/trailing_array.h"
#include "residency/block/block.h"
#include "residency/engine.h"
#include "torch/memory/address_space.h"
#include "torch/memory/device_index.h"
#include "torch/memory/origin.h"
#include "torch/memory/real_views.h"

namespace innkeeper::torch_layer {

inline constexpr c10::DeviceType kManagedType = c10::DeviceType::PrivateUse1;
inline constexpr c10::DispatchKey kManagedKey = c10::DispatchKey::PrivateUse1;
inline c10::Device managed_device() { return {kManagedType, 0}; }

inline bool is_managed(const at::Tensor& x) {
  return x.defined() && x.unsafeGetTensorImpl()->device_type() == kManagedType;
}

// The allocator of handles: creates a block without any replica, so it costs no memory of any node (I1).
c10::Allocator* handle_allocator();

// The deleter of a handle's DataPtr.
void delete_handle(void* block);

// Whether the storage is a handle and does not merely borrow the block of one.
inline bool owns_block(const c10::StorageImpl& storage) {
  return storage.data_ptr().get_deleter() == &delete_handle;
}
// Where a borrowing storage begins in its block. Throws if there is none, or none of that size, at its
// address.
struct Borrowed {
  Block* block;
  size_t offset;
};
Borrowed borrowed_block(const c10::StorageImpl& storage);
// All borrowing storages of no bytes share one block without any. Gives it up: configure() calls this, since
// a block is of one machine.
void forget_empty_block();

// The block behind a managed storage.
inline Block* block_of(const c10::StorageImpl& storage) {
  if (owns_block(storage)) [[likely]]
    return static_cast<Block*>(storage.data_ptr().get_context());
  return borrowed_block(storage).block;
}
inline Block* block_of(const at::Tensor& x) {
  return block_of(*x.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
}

// A new managed storage of this device index over a new block of `size` bytes, with no replica.
c10::intrusive_ptr<c10::StorageImpl> make_handle(Bytes size, c10::DeviceIndex index = current_index());

// The handle's block was resized to `size`: gives it an address range that is long enough.
void resize_handle(c10::StorageImpl& storage, Bytes size);

// The real storage of a block on a node, and tensors over it.
struct RealAtNode {
  std::atomic<c10::StorageImpl*> storage{nullptr};  // an owned reference
  RealViews views;
};

// What the torch layer keeps with a block: the real storage on each node where it ever was, for the block's
// life, and tensors over it. Evicting takes the data pointer out of it, fetching puts the new one in.
struct Attachment : TrailingArray<Attachment, RealAtNode> {
  AddressSpace::Range* addresses = nullptr;  // null for a block of no bytes
  std::unique_ptr<Origin> origin;            // null for most
  c10::DeviceIndex device_index = 0;         // of the storage that owns the block
  Bytes counted{0};                          // for that index (index_memory.h)
  Block::Space space;                        // while it is kept for the next block: that one's memory

  RealAtNode& real(NodeId node) { return items()[index_of(node)]; }
};
inline Attachment& attachment_of(const Block& block) { return *static_cast<Attachment*>(block.attachment); }

}  // namespace innkeeper::torch_layer
