// Which work has passed on a compute queue, without waiting for more: each operator has a stamp, the engine's
// clock when its kernels were put on the queue, and of some of these moments there is an event. A thread that
// needs an operator's work done waits for the first event that covers its stamp (docs/decisions/0004).
//
// Events are recorded where one is likely to be wanted: after operators that wrote much, and every few
// operators. Where none covers a stamp, one is recorded then.
//
// Thread safety: all methods. The mutex is a leaf; the device is called without it.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/thread_annotations.h"
#include "device/marks.h"

namespace innkeeper {

// The number of an operator, over all nodes: greater than that of each whose kernels were launched before.
using Stamp = uint64_t;

// Work without a stamp: all that is on the queue when it is asked for.
inline constexpr Stamp kAllSoFar = UINT64_MAX;

class Stamps {
 public:
  Stamps(Device& device, const std::atomic<Stamp>& clock) : device_(device), clock_(clock) {}

  // An operator that wrote `bytes` is on the queue, and has its stamp.
  void launched(Bytes bytes) IK_EXCLUDES(mutex_);
  // The event after which all work stamped with `stamp` or less is done.
  Result<Event> after(Stamp stamp) IK_EXCLUDES(mutex_);

 private:
  static constexpr int64_t kMuch = int64_t{1} << 20;  // bytes written
  static constexpr int64_t kFew = 32;                 // operators

  Result<Event> mark() IK_EXCLUDES(mutex_);

  Device& device_;
  const std::atomic<Stamp>& clock_;
  std::atomic<int64_t> written_{0};  // Bytes written since the last mark.
  std::atomic<int64_t> operators_{0};
  Mutex mutex_;
  Marks marks_ IK_GUARDED_BY(mutex_);  // Ascending by stamp.
};

}  // namespace innkeeper
