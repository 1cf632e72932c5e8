// A copy between a block and memory that the engine does not know, which the program does not wait for: a
// batch from page-locked memory, a result into it (`non_blocking=True`).
//
// The copy runs on a copy queue, concurrently with kernels that do not touch the block:
//     Access access{.block = block, .write = into_the_block, .queue = Queue::copy_in};  // or copy_out
//     IK_RETURN_IF_ERROR(engine.gather(node, {&access, 1}, size, admission));
//     ProgramCopy copy(engine.table(), node, access);
//     IK_RETURN_IF_ERROR(copy.begin());
//     ... put the copy on the queue; `copied` is an event behind it ...
//     IK_RETURN_IF_ERROR(copy.end(copied));
//     engine.release(node, {&access, 1});
//
// Ensures: the copy comes after the operators that used these bytes before (a copy out: after those that
// wrote them). An operator that uses them next comes after the copy (after a copy out: only one that writes
// them).
//
// Thread safety: one object belongs to one thread. Locks: engine_mutex, for book-keeping only.
#pragma once

#include "residency/block/access.h"
#include "residency/block/block_table.h"

namespace innkeeper {

class ProgramCopy {
 public:
  // Requires: `access` is pinned at `node`, an accelerator, and its queue is a copy queue; a copy out reads.
  ProgramCopy(BlockTable& table, NodeId node, const Access& access);
  ProgramCopy(const ProgramCopy&) = delete;
  ProgramCopy& operator=(const ProgramCopy&) = delete;

  // Orders the queue after the work that the copy must follow. Blocks only while another thread moves the
  // block: then until the device has done all its work.
  Status begin();
  // Orders later operators after `copied`. On failure the caller must wait for `copied`.
  Status end(Event copied);

 private:
  BlockTable& table_;
  const NodeId node_;
  const Access& access_;
};

}  // namespace innkeeper
