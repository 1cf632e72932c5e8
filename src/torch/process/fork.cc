#include "torch/process/fork.h"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "base/check.h"

namespace innkeeper::torch_layer {
namespace {

std::atomic<bool> child{false};

struct Locks {
  Mutex mutex;  // Locked before all leaves.
  std::vector<Mutex*> leaves;
};

Locks& locks() {
  static auto& it = *new Locks;  // Leaked: the process may fork at any time.
  return it;
}

void before_fork() IK_NO_THREAD_SAFETY_ANALYSIS {
  locks().mutex.lock();
  for (Mutex* leaf : locks().leaves) leaf->lock();
}

void after_fork() IK_NO_THREAD_SAFETY_ANALYSIS {
  for (Mutex* leaf : locks().leaves) leaf->unlock();
  locks().mutex.unlock();
}

void after_fork_in_child() {
  if (runtime_is_there()) {
    child.store(true, std::memory_order_relaxed);
    forget_runtime_in_child();
  }
  after_fork();
}

}  // namespace

bool is_forked_child() { return child.load(std::memory_order_relaxed); }

void refuse_in_forked_child() {
  TORCH_CHECK(!is_forked_child(),
              "the managed device cannot be used in a process that was forked after its first use: start "
              "processes by 'spawn' (torch.multiprocessing.set_start_method, or "
              "DataLoader(multiprocessing_context='spawn')), or use the device after the fork alone");
}

void watch_forks() {
  static std::once_flag once;
  std::call_once(once, [] {
    const int registered = pthread_atfork(&before_fork, &after_fork, &after_fork_in_child);
    IK_CHECK(registered == 0, "pthread_atfork has no memory");
  });
}

void take_at_fork(Mutex& mutex) {
  watch_forks();
  MutexLock lock(locks().mutex);
  locks().leaves.push_back(&mutex);
}

}  // namespace innkeeper::torch_layer
