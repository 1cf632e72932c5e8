// A handle: the storage of a managed tensor. Its DataPtr's context is the engine's Block. Its data pointer is
// a reserved address that nothing may touch, so identity, aliasing and hashing work and a stray access traps.
//
// A managed tensor is a plain TensorImpl on DispatchKey::PrivateUse1 over such a storage. The block lives as
// long as the storage does.
//
// A storage may also borrow a block. PyTorch makes a storage over an address alone (at::from_blob) for the
// old format of its files, which pickle uses, for DLPack and for slices of storages. The address leads to the
// block. The owner of the memory must keep it alive, as on any device.
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

// Whether the storage is a handle, as opposed to one that borrows a block.
inline bool owns_block(const c10::StorageImpl& storage) {
  return storage.data_ptr().get_deleter() == &delete_handle;
}
// The block and the byte offset of a borrowing storage. Throws if there is no block at its address, or if the
// block is too small.
struct Borrowed {
  Block* block;
  size_t offset;
};
Borrowed borrowed_block(const c10::StorageImpl& storage);
// Frees the one block, of size 0, that all borrowing storages without bytes share. Called by configure(),
// because a block belongs to one machine.
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

// Gives the handle an address range of sufficient length after its block was resized to `size`.
void resize_handle(c10::StorageImpl& storage, Bytes size);

// The real storage of a block on a node, and tensors over it.
struct RealAtNode {
  // An owned reference; null if the block was never on the node.
  std::atomic<c10::StorageImpl*> storage{nullptr};
  RealViews views;
};

// State of the torch layer for a block: the real storage on each node where the block has ever been, for the
// block's life, and tensors over it. Evicting nulls the storage's data pointer, fetching sets it again.
struct Attachment : TrailingArray<Attachment, RealAtNode> {
  AddressSpace::Range* addresses = nullptr;  // Null for a block of no bytes.
  std::unique_ptr<Origin> origin;            // Null for most blocks.
  c10::DeviceIndex device_index = 0;         // Index of the storage that owns the block.
  Bytes counted{0};                          // Bytes counted for device_index (index_memory.h).
  Block::Space space;                        // Memory for the next Block, while this is a spare attachment.

  RealAtNode& real(NodeId node) { return items()[index_of(node)]; }
};
inline Attachment& attachment_of(const Block& block) { return *static_cast<Attachment*>(block.attachment); }

}  // namespace innkeeper::torch_layer
