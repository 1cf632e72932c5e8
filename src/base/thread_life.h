// Tells whether a thread still runs, for objects that outlive it.
//
// Thread safety: all of it.
#pragma once

#include <atomic>
#include <memory>

namespace innkeeper {

struct ThreadLife {
  std::atomic<bool> over{false};  // Released last, so that the thread's earlier writes are visible.
};

// True: the calling thread is ending, and its thread-local objects are being destroyed, or are gone.
inline constinit thread_local bool thread_is_ending = false;

// Returns the calling thread's life; null once the thread is ending.
inline std::shared_ptr<const ThreadLife> thread_life() {
  struct Holder {
    ~Holder() {
      thread_is_ending = true;
      life->over.store(true, std::memory_order_release);
    }
    std::shared_ptr<ThreadLife> life = std::make_shared<ThreadLife>();
  };
  if (thread_is_ending) return nullptr;
  static thread_local Holder holder;
  return holder.life;
}

}  // namespace innkeeper
