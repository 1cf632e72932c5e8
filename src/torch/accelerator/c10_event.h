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
  // Recorded on the stream now. `call`: what it is the event of, for the message of its failure. Throws what
  // PyTorch throws.
  C10Event(const c10::Stream& stream, std::shared_ptr<DeviceHealth> health, DeviceCall call);
  bool done() override;
  Status synchronize() override;
  // Has the stream wait for it. Throws in the same cases.
  void block(const c10::Stream& stream) { event_.block(stream); }
  c10::Event& event() { return event_; }

 private:
  void note_passed();

  c10::Event event_;
  const std::shared_ptr<DeviceHealth> health_;
  const DeviceCall call_;
  std::atomic<bool> over_{false};    // a thread has waited: no more will be known
  std::atomic<bool> passed_{false};  // and it went well
};

// Has a stream wait for an event. Where it cannot, as for another make's, the caller waits.
void order_after(const c10::Stream& stream, const Event& event) noexcept;

}  // namespace innkeeper::torch_layer
