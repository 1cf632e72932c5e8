#include "torch/accelerator/c10_event.h"

#include <exception>
#include <utility>

#include "torch/accelerator/guarded.h"

namespace innkeeper::torch_layer {

C10Event::C10Event(const c10::Stream& stream, std::shared_ptr<DeviceHealth> health, DeviceCall call)
    : event_(stream.device_type()), health_(std::move(health)), call_(std::move(call)) {
  event_.record(stream);
}

// The caller may be a deleter, so an error is left to a thread that waits. Until such a wait, the work counts
// as not done.
bool C10Event::done() {
  if (over_.load(std::memory_order_acquire)) return true;
  const Result<bool> answer = guarded(*health_, call_, [&]() -> Result<bool> { return event_.query(); });
  const bool passed = answer.ok() && answer.value();
  if (passed) note_passed();
  return passed;
}

Status C10Event::synchronize() {
  // Work that was done once stays done, even if the device is lost since.
  if (passed_.load(std::memory_order_acquire)) return {};
  Status status = guarded(*health_, call_, [&]() -> Status {
    event_.synchronize();
    return {};
  });
  if (status.ok()) {
    note_passed();
    return status;
  }
  health_->wait_out();  // Other users get memory that the work touches only after the work.
  over_.store(true, std::memory_order_release);
  return status;
}

void C10Event::note_passed() {
  passed_.store(true, std::memory_order_release);
  over_.store(true, std::memory_order_release);
}

void order_after(const c10::Stream& stream, const Event& event) noexcept {
  if (event == nullptr) return;
  try {
    if (auto* const ours = dynamic_cast<C10Event*>(event.get())) return ours->block(stream);
  } catch (const std::exception&) {
    // The caller waits instead.
  }
  (void)event->synchronize();
}

}  // namespace innkeeper::torch_layer
