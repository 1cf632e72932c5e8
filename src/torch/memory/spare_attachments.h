// Attachments of small blocks that have died, each with its address range, kept for the thread's next
// handles. Most tensors have the size of one that has just died, and then neither malloc nor the address
// space is needed. The attachment also keeps the memory of its dead Block.
//
// A thread keeps a few for each size class, and frees them when it ends. A kept address range leads to no
// block, and counts as live in the address space.
//
// Thread safety: take_attachment, keep_attachment and drop_spare_attachments work on the calling thread's own
// store.
#pragma once

#include "torch/memory/handle.h"

namespace innkeeper::torch_layer {

// An attachment for a block of `size` bytes, in a machine of `nodes` nodes: a kept one, or a new one.
Attachment::Owner take_attachment(size_t nodes, size_t size);
// Keeps the attachment of a dead block. Requires: it has no real storage any more, and its address leads to
// no block.
void keep_attachment(Attachment::Owner attachment, size_t nodes);
// Frees the attachments that the calling thread keeps.
void drop_spare_attachments();

}  // namespace innkeeper::torch_layer
