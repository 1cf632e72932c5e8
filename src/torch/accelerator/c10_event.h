// An event of c10 as the engine's Event.
//
// Thread safety: all methods.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <memory>

#include "device/device_api.h"
#include "torch/accelerator/device_health.h"

namespace innkeeper::torch_layer {

class C10Event final : public EventState {
 public:
  // Recorded on the stream now. `call`: the call after which it was recorded, for the message of a failure.
  // Throws PyTorch's exceptions.
  C10Event(const c10::Stream& stream, std::shared_ptr<DeviceHealth> health, DeviceCall call);
  bool done() override;
  Status synchronize() override;
  // Makes the stream wait for the event. Throws in the same cases.
  void block(const c10::Stream& stream) { event_.block(stream); }
  c10::Event& event() { return event_; }

 private:
  void note_passed();

  c10::Event event_;
  const std::shared_ptr<DeviceHealth> health_;
  const DeviceCall call_;
  std::atomic<bool> over_{false};    // A thread has waited for it: its state is final.
  std::atomic<bool> passed_{false};  // The work before it succeeded.
};

// Makes a stream wait for an event. If the stream cannot, as for an event of another vendor's device, the
// caller waits.
void order_after(const c10::Stream& stream, const Event& event) noexcept;

}  // namespace innkeeper::torch_layer
