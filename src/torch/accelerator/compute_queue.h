// Keeps kernels on a node's compute queue whatever stream of its device the program has chosen.
//
// The engine orders copies after the compute queue, which is the device's default stream (c10_device.h). A
// program may work on another (torch.cuda.stream). What it asks of managed tensors then runs on the compute
// queue all the same, after what its stream holds by then, and its stream goes on after that: the order that
// PyTorch promises on one stream.
//
// Where the program has chosen no stream, which is nearly always, each function costs one comparison.
//
// Thread safety: all; an object belongs to one thread. Failures of the device are thrown as c10::Error.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <optional>

namespace innkeeper::torch_layer {

// What the calling thread's current stream holds by now comes before what the compute queue gets from now on.
// Throws where that stream is being captured for a graph: a graph holds addresses, and managed memory moves.
void order_compute_queue_after_program(c10::Device device);
// What the compute queue holds by now comes before what the calling thread's current stream gets from now on.
void order_program_after_compute_queue(c10::Device device);

// For its life the compute queue is the calling thread's current stream of the device.
class OnComputeQueue {
 public:
  explicit OnComputeQueue(c10::Device device);
  ~OnComputeQueue();
  OnComputeQueue(const OnComputeQueue&) = delete;
  OnComputeQueue& operator=(const OnComputeQueue&) = delete;

 private:
  std::optional<c10::Stream> programs_;  // empty: it was the compute queue
};

}  // namespace innkeeper::torch_layer
