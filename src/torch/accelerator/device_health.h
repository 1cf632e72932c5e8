// Whether an accelerator is there: failures of its calls, as a Status that names it, the call and what the
// vendor says. Shared by a device and its events, which may outlive it.
//
// A failed call is device_failed, unless the device answers nothing any more: asked for the state of its
// queue, a card that is gone, or whose context is broken, fails again. Then it is device_lost, and stays
// so.
//
// Thread safety: all methods.
#pragma once

#include <c10/core/Stream.h>

#include <atomic>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "base/status.h"
#include "base/thread_annotations.h"
#include "base/types.h"

namespace innkeeper::torch_layer {

// What a device was asked for. Put into words only where it fails: copies are many.
struct DeviceCall {
  const char* what;                          // "copying"
  std::optional<Bytes> size = std::nullopt;  // if it is about bytes
  const char* where = "";                    // " to the host", or what stands before the peer
  std::string peer = {};
  std::string text() const;
};

class DeviceHealth {
 public:
  DeviceHealth(std::string name, const c10::Stream& queue) : name_(std::move(name)), queue_(queue) {}

  const std::atomic<bool>& lost() const { return lost_; }
  // Why it is lost.
  Status loss() const IK_EXCLUDES(mutex_);
  // `call` failed with this exception.
  Status failure(const DeviceCall& call, const std::exception& error) IK_EXCLUDES(mutex_);
  // Waits until all work of the device is over, for who cannot know what a call that failed has put there.
  // One on which that fails again and again is given up for lost.
  void wait_out() noexcept IK_EXCLUDES(mutex_);
  c10::DeviceType type() const { return queue_.device_type(); }

 private:
  void lose(const std::string& line) IK_EXCLUDES(mutex_);
  bool answers() const noexcept;

  const std::string name_;
  const c10::Stream queue_;
  std::atomic<bool> lost_{false};
  mutable Mutex mutex_;  // a leaf
  std::string why_ IK_GUARDED_BY(mutex_);
};

}  // namespace innkeeper::torch_layer
