// Copies between devices and page-locked memory that a program does not wait for (program_copy.h).
//
// A program that copies a tensor out and in again expects the second copy to follow the first, as on one
// stream of a GPU. Here they run on different queues, or at different devices, so each copy orders itself
// after those before it.
//
// Thread safety: every function. Where there is no such copy, asking costs one load.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "base/thread_annotations.h"
#include "device/device_api.h"

namespace innkeeper {

// Host memory, and whether a copy writes or reads it.
struct HostRange {
  const void* data;
  size_t size;  // bytes
  bool written;
};

class PinnedCopies {
 public:
  // Orders the device's queue after the copies that conflict with a copy of these bytes: both touch a byte,
  // and one of them writes it. O(copies under way). Blocks: at a host or a disk, until they are done.
  Status order_after(Device& device, Queue queue, const HostRange& range) const;
  // A copy of these bytes is on a queue; `copied` is its event.
  void add(const HostRange& range, Event copied);
  size_t size() const { return count_.load(std::memory_order_acquire); }

 private:
  // Number of copies at which done ones are removed; at least twice as many as stayed the last time, so that
  // adding one costs O(1) amortised.
  static constexpr size_t kMany = 64;

  struct PinnedCopy {
    HostRange range;
    Event copied;
  };

  mutable Mutex mutex_;
  std::vector<PinnedCopy> copies_ IK_GUARDED_BY(mutex_);
  size_t many_ IK_GUARDED_BY(mutex_) = kMany;
  std::atomic<size_t> count_{0};
};

}  // namespace innkeeper
