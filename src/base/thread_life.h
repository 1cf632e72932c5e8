// Whether a thread goes on, for those who outlive it.
//
// Thread safety: all of it.
#pragma once

#include <atomic>
#include <memory>

namespace innkeeper {

struct ThreadLife {
  std::atomic<bool> over{false};  // released at last: what the thread did before can be seen
};

// The calling thread is ending: its thread-local objects are going, or gone.
inline constinit thread_local bool thread_is_ending = false;

// The calling thread's; null once it is ending.
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
