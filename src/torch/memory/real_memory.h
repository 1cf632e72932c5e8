// The real tensors behind handles: one real StorageImpl for each block and node, for the block's life, and
// tensors over it for operators.
//
// The engine owns the memory; the real storage's data pointer only borrows it. Evicting nulls that pointer,
// fetching sets it again (memory_changed is the engine's observer).
//
// Thread safety: as the engine's. A thread uses a replica only while it pins it, and the replica changes only
// while no thread pins it.
#pragma once

#include "torch/memory/handle.h"
#include "torch/process/runtime_state.h"

namespace innkeeper::torch_layer {

// The engine's MemoryObserver and EscapeProbe.
void memory_changed(Block& block, NodeId node, void* data);
bool is_held_elsewhere(Block& block, NodeId node);

// The real storage of a block. Requires: the caller has pinned the block at `node`, or the block has no
// bytes.
c10::StorageImpl& real_storage(Runtime& runtime, Block& block, NodeId node);

// A real tensor with the geometry of a managed one, over its block's real storage at `node`: a kept one, or a
// new one. `shown`: the managed tensor's storage; `inference`: whether InferenceMode is on.
at::Tensor real_tensor(Runtime& runtime, const c10::TensorImpl& managed, const c10::StorageImpl& shown,
                       Block& block, NodeId node, bool inference);

// Keeps an operator's real tensor over the block's real storage at `node` for the next operator. `alone`: no
// other thread knows of the block yet.
void keep_real_tensor(Block& block, NodeId node, at::Tensor real, bool alone = false);

// Turns the storage of a kernel's result at `node` into a handle. Its memory becomes the new block's replica,
// pinned there until the caller releases it. Null if a living block has that memory, because the kernel
// returned memory that it keeps for a second time.
c10::intrusive_ptr<c10::StorageImpl> adopt_storage(Runtime& runtime, const c10::Storage& real, NodeId node,
                                                   c10::DeviceIndex index);

// Makes the storage own the memory that it has borrowed from its block's replica.
void hand_over(c10::StorageImpl& real, Memory memory);

// Handles a kernel that resized the real storage of a written, pinned operand: gives the new memory to the
// engine, and the new size to the handle. Returns whether it did.
bool adopt_resize(Runtime& runtime, c10::StorageImpl& handle, Block& block, NodeId node, bool pinned);

// Compares and copies sizes, strides, offset and view bits.
bool same_geometry(const c10::TensorImpl& a, const c10::TensorImpl& b);
void copy_geometry(const c10::TensorImpl& source, c10::TensorImpl& target);

}  // namespace innkeeper::torch_layer
