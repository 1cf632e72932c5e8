#include "torch/accelerator/compute_queue.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include "torch/accelerator/backend.h"
#include "torch/accelerator/current_device.h"

namespace innkeeper::torch_layer {
namespace {

using c10::Stream;
using c10::impl::VirtualGuardImpl;

// The calling thread's current stream, unless that is the compute queue.
std::optional<Stream> stream_of_program(const VirtualGuardImpl& guard, c10::Device device) {
  const Stream current = guard.getStream(device);
  if (current == guard.getDefaultStream(device)) [[likely]]
    return std::nullopt;
  return current;
}

// Orders two streams by an event. If the device takes no event, the caller waits, so that its later work
// comes later.
void order(const Stream& first, const Stream& then) {
  try {
    keeping_current_device(first.device_type(), [&] {
      c10::Event event(first.device_type());
      event.record(first);
      event.block(then);
    });
  } catch (const std::exception&) {
    VirtualGuardImpl(first.device_type()).synchronizeStream(first);
  }
}

void refuse_capture(c10::Device device) {
  Backend* const backend = backend_of(device.type());
  TORCH_CHECK(backend == nullptr || !backend->is_capturing(device.index()),
              "managed tensors cannot be used while a CUDA graph is captured: a graph keeps addresses, and "
              "managed memory moves; capture with tensors on ",
              device);
}

// Returns the program's stream, if it has chosen one.
std::optional<Stream> come_after_program(const VirtualGuardImpl& guard, c10::Device device) {
  const std::optional<Stream> programs = stream_of_program(guard, device);
  if (!programs.has_value()) return std::nullopt;
  refuse_capture(device);
  order(*programs, guard.getDefaultStream(device));
  return programs;
}

}  // namespace

void order_compute_queue_after_program(c10::Device device) {
  (void)come_after_program(VirtualGuardImpl(device.type()), device);
}

void order_program_after_compute_queue(c10::Device device) {
  const VirtualGuardImpl guard(device.type());
  if (const std::optional<Stream> programs = stream_of_program(guard, device)) {
    order(guard.getDefaultStream(device), *programs);
  }
}

OnComputeQueue::OnComputeQueue(c10::Device device) {
  const VirtualGuardImpl guard(device.type());
  programs_ = come_after_program(guard, device);
  if (programs_.has_value()) guard.exchangeStream(guard.getDefaultStream(device));
}

OnComputeQueue::~OnComputeQueue() {
  if (!programs_.has_value()) return;
  const VirtualGuardImpl guard(programs_->device_type());
  try {
    order(guard.getDefaultStream(programs_->device()), *programs_);
  } catch (const std::exception& error) {
    TORCH_WARN("innkeeper: ", programs_->device(), ": ", error.what());
  }
  guard.exchangeStream(*programs_);
}

}  // namespace innkeeper::torch_layer
