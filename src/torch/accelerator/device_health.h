// Whether an accelerator still works. Turns failures of its calls into a Status that names the accelerator,
// the call and the vendor's message. A device and its events share it, and the events may outlive the device.
//
// A failed call is device_failed as long as the device still answers a query of its queue. A GPU that is
// gone, or whose context is broken, fails this query again; then it is device_lost, and stays so.
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

// A call on a device, for messages. Formatted only if the call fails, because copies are frequent.
struct DeviceCall {
  const char* what;                          // The call as a participle: "copying".
  std::optional<Bytes> size = std::nullopt;  // Bytes of the call; none if it has no size.
  const char* where = "";                    // Direction: " to the host", or the preposition before the peer.
  std::string peer = {};
  std::string text() const;
};

class DeviceHealth {
 public:
  DeviceHealth(std::string name, const c10::Stream& queue) : name_(std::move(name)), queue_(queue) {}

  const std::atomic<bool>& lost() const { return lost_; }
  // The reason why it is lost.
  Status loss() const IK_EXCLUDES(mutex_);
  // The status for `call`, which failed with this exception.
  Status failure(const DeviceCall& call, const std::exception& error) IK_EXCLUDES(mutex_);
  // Waits until all work of the device is over. For callers that cannot know the work that a failed call has
  // put there. If the wait fails repeatedly, the device is marked as lost.
  void wait_out() noexcept IK_EXCLUDES(mutex_);
  c10::DeviceType type() const { return queue_.device_type(); }

 private:
  void lose(const std::string& line) IK_EXCLUDES(mutex_);
  bool answers() const noexcept;

  const std::string name_;
  const c10::Stream queue_;
  std::atomic<bool> lost_{false};
  mutable Mutex mutex_;  // Leaf lock.
  std::string why_ IK_GUARDED_BY(mutex_);
};

}  // namespace innkeeper::torch_layer
