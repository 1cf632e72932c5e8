// Attachments of small blocks that have gone, each with its address range, kept for the thread's next
// handles: most tensors have the size of one that has just gone, and neither malloc nor the address space is
// asked then. The memory of the block that has gone is kept with its attachment.
//
// A few for each class of sizes and thread; given back when the thread ends. What is kept belongs to no
// block, so its address leads to none, and counts as live in the address space.
//
// Thread safety: take and keep work on what the calling thread has.
#pragma once

#include "torch/memory/handle.h"

namespace innkeeper::torch_layer {

// One for a block of `size` bytes, in a machine of so many nodes: kept, or new.
Attachment::Owner take_attachment(size_t nodes, size_t size);
// Of a block that has gone: it has no real storage any more, and its address leads to no block.
void keep_attachment(Attachment::Owner attachment, size_t nodes);
// Gives back what the calling thread keeps.
void drop_spare_attachments();

}  // namespace innkeeper::torch_layer
