// Lock discipline that clang can check (-Wthread-safety). Empty on other compilers.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define IK_ATTRIBUTE(x) __attribute__((x))
#else
#define IK_ATTRIBUTE(x)
#endif

#define IK_CAPABILITY(x) IK_ATTRIBUTE(capability(x))
#define IK_SCOPED_CAPABILITY IK_ATTRIBUTE(scoped_lockable)
#define IK_GUARDED_BY(x) IK_ATTRIBUTE(guarded_by(x))
#define IK_REQUIRES(...) IK_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define IK_EXCLUDES(...) IK_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define IK_ACQUIRE(...) IK_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define IK_RELEASE(...) IK_ATTRIBUTE(release_capability(__VA_ARGS__))
#define IK_TRY_ACQUIRE(...) IK_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define IK_NO_THREAD_SAFETY_ANALYSIS IK_ATTRIBUTE(no_thread_safety_analysis)

namespace innkeeper {

// std::mutex with the annotations that libstdc++ lacks.
class IK_CAPABILITY("mutex") Mutex {
 public:
  void lock() IK_ACQUIRE() { mutex_.lock(); }
  void unlock() IK_RELEASE() { mutex_.unlock(); }
  bool try_lock() IK_TRY_ACQUIRE(true) { return mutex_.try_lock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a Mutex for a scope. unlock()/lock() let a scope do slow work in the middle (I10).
class IK_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) IK_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() IK_RELEASE() {
    if (held_) mutex_.unlock();
  }
  void unlock() IK_RELEASE() {
    held_ = false;
    mutex_.unlock();
  }
  void lock() IK_ACQUIRE() {
    mutex_.lock();
    held_ = true;
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  friend class CondVar;
  Mutex& mutex_;
  bool held_ = true;
};

// A condition variable for Mutex. Waits may wake spuriously: call them in a loop.
class CondVar {
 public:
  void wait(Mutex& mutex) IK_REQUIRES(mutex) {
    std::unique_lock<std::mutex> borrowed(mutex.mutex_, std::adopt_lock);
    condition_.wait(borrowed);
    borrowed.release();
  }
  void wait_for(Mutex& mutex, std::chrono::microseconds limit) IK_REQUIRES(mutex) {
    std::unique_lock<std::mutex> borrowed(mutex.mutex_, std::adopt_lock);
    condition_.wait_for(borrowed, limit);
    borrowed.release();
  }
  void notify_all() noexcept { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace innkeeper
