// Copies between nodes: the queue that runs a copy, the events that the queue waits for first, and counts of
// bytes.
//
// Every function is called without the lock (I10), on a block that this thread has marked as moving.
#pragma once

#include <atomic>
#include <cstdint>

#include "innkeeper/stats.h"
#include "residency/block/block_table.h"
#include "residency/block/observers.h"

namespace innkeeper {

class Transfers {
 public:
  // `table` must outlive the object.
  explicit Transfers(BlockTable& table) : table_(table) {}

  void set_watch(CopyWatch watch) { watch_ = std::move(watch); }
  // Queues a copy of the next `size` bytes of a move. One end is host memory, or both ends are accelerators
  // that reach each other. `follows`: the bytes before came by the same queue. Else the queue first waits for
  // what fills the source, and for the move's copies so far, so that the last event stands for all of them.
  Result<Event> copy(const Move& move, Bytes size, bool follows);
  // Has the queue wait for the work that fills the source: its last writer, not later kernels, and a copy
  // into it that is under way. Memory that is held outside may be written at any time.
  Status order_after_writes(Device& runner, Queue queue, const Block& block, NodeId from) const;
  void log_move(const char* verb, const Block& block, NodeId from, NodeId to) const;
  void count_into(Stats& stats) const;  // Fills the fields of bytes.
  void reset_counts();

 private:
  Result<Event> queue_copy(const Move& move, Bytes size, bool follows);
  std::atomic<int64_t>& bytes_copied(CopyKind kind);

  BlockTable& table_;
  CopyWatch watch_;
  std::atomic<int64_t> bytes_fetched_ = 0, bytes_written_back_ = 0, bytes_between_ = 0;
  std::atomic<int64_t> bytes_from_disk_ = 0, bytes_to_disk_ = 0;  // Parts of the above.
};

}  // namespace innkeeper
