// Keeps kernels on a node's compute queue whatever stream of its device the program has chosen.
//
// The engine orders copies after the compute queue, which is the device's default stream (c10_device.h). A
// program may work on another stream (torch.cuda.stream). Its operators on managed tensors still run on the
// compute queue. They run after the earlier work of the program's stream, and the stream's later work runs
// after them: the order that PyTorch promises on one stream.
//
// If the program has chosen no stream, which is the usual case, each function costs one comparison.
//
// Thread safety: all; an object belongs to one thread. Failures of the device are thrown as c10::Error.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <optional>

namespace innkeeper::torch_layer {

// Orders later work of the compute queue after the present work of the calling thread's current stream.
// Throws if that stream is being captured for a graph: a graph holds addresses, and managed memory moves.
void order_compute_queue_after_program(c10::Device device);
// Orders later work of the calling thread's current stream after the present work of the compute queue.
void order_program_after_compute_queue(c10::Device device);

// While it lives, the compute queue is the calling thread's current stream of the device.
class OnComputeQueue {
 public:
  explicit OnComputeQueue(c10::Device device);
  ~OnComputeQueue();
  OnComputeQueue(const OnComputeQueue&) = delete;
  OnComputeQueue& operator=(const OnComputeQueue&) = delete;

 private:
  std::optional<c10::Stream> programs_;  // Empty if the compute queue was the current stream already.
};

}  // namespace innkeeper::torch_layer
