// The engine's mutex as a capability that clang checks across the parts of an engine.
//
// All parts of one engine (BlockTable, Mover, Evictor, ...) share BlockTable's mutex. Clang compares locks by
// the expression that names them, and cannot see that the tables of two parts are one object. The capability
// `engine_mutex` therefore names the role: functions and members are annotated with it, and only the scopes
// of this file take it. A thread never locks two engines at once.
//
// Locks: the mutex is never held across a copy, an allocation, a kernel or a wait for a device (I10).
#pragma once

#include <chrono>

#include "base/thread_annotations.h"

namespace innkeeper {

class BlockTable;

class IK_CAPABILITY("engine mutex") EngineMutexRole {};
inline constexpr EngineMutexRole engine_mutex;

// Holds the table's mutex for a scope. unlock() and lock() allow slow work in the middle.
class IK_SCOPED_CAPABILITY TableLock {
 public:
  explicit TableLock(const BlockTable& table) IK_ACQUIRE(engine_mutex);
  ~TableLock() IK_RELEASE();
  TableLock(const TableLock&) = delete;
  TableLock& operator=(const TableLock&) = delete;

  void unlock() IK_RELEASE();
  void lock() IK_ACQUIRE();
  // Waits for `condition`; releases the mutex meanwhile.
  void wait(CondVar& condition) IK_REQUIRES(engine_mutex);
  void wait_for(CondVar& condition, std::chrono::microseconds limit) IK_REQUIRES(engine_mutex);

 private:
  friend class Unlocked;
  static Mutex& mutex_of(const BlockTable& table);

  Mutex& mutex_;
  bool held_ = true;
};

// Releases the table's mutex, which the caller holds, for a scope.
class IK_SCOPED_CAPABILITY Unlocked {
 public:
  explicit Unlocked(const BlockTable& table) IK_RELEASE(engine_mutex);
  ~Unlocked() IK_RELEASE();  // A scope that began with a release ends by taking the mutex again.
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace innkeeper
