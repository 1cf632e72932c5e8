// Tells the mover's thread (mover_thread.h) that a move may go on, and every thread whether any move is under
// way.
//
// Thread safety: is_needed() from any thread, without a lock; the rest as annotated.
#pragma once

#include <atomic>
#include <cstdint>

#include "residency/block/table_lock.h"

namespace innkeeper {

class MoveSignal {
 public:
  // Whether some move is watched or waits for a link. One relaxed load: operators ask it on their fast path.
  bool is_needed() const { return under_way_.load(std::memory_order_relaxed) != 0; }
  // `moves` are watched or wait; of these, `waiting` wait for a link.
  void count(size_t moves, size_t waiting) IK_REQUIRES(engine_mutex) {
    under_way_.store(static_cast<int64_t>(moves), std::memory_order_relaxed);
    if (polls_ && waiting != 0 && sleeps_) condition_.notify_all();
  }
  // A move may go on now: a disk finished work, or a thread released a block that a move needs.
  void raise() IK_REQUIRES(engine_mutex) {
    raised_ = true;
    condition_.notify_all();
  }

 private:
  friend class MoverThread;
  std::atomic<int64_t> under_way_ = 0;  // Moves that are watched or wait for a link.
  CondVar condition_;
  bool polls_ =
      false;  // Some device reports no progress, so its links are polled. Constant while a thread runs.
  bool raised_ IK_GUARDED_BY(engine_mutex) = false;
  bool sleeps_ IK_GUARDED_BY(engine_mutex) = false;
};

}  // namespace innkeeper
