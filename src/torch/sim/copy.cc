#include "torch/sim/copy.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/empty.h>

#include <vector>

#include "torch/accelerator/kernel_work.h"
#include "torch/memory/pinned_memory.h"
#include "torch/process/faults.h"
#include "torch/sim/allocator.h"
#include "torch/sim/current.h"
#include "torch/sim/kernel_call.h"
#include "torch/sim/sim_backend.h"

namespace innkeeper::torch_layer::sim_backend {
namespace {

using at::Tensor;
using Direction = sim::Accelerator::Direction;

// Whether one copy of memory makes the bytes of `to` those of `from`.
bool same_bytes(const Tensor& to, const Tensor& from) {
  return to.scalar_type() == from.scalar_type() && to.is_conj() == from.is_conj() &&
         to.is_neg() == from.is_neg() && to.sizes() == from.sizes() && to.is_non_overlapping_and_dense() &&
         (to.strides() == from.strides() || (to.is_contiguous() && from.is_contiguous()));
}

void check_dense(const Tensor& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == c10::kStrided && !tensor.is_quantized(),
                              "simulated accelerators hold dense tensors only, not ", tensor.layout(), " of ",
                              tensor.scalar_type());
}

// Memory that was allocated on one stream and is used on another stays until the other stream has passed
// (I6).
void used_on(const Tensor& tensor, sim::QueueIndex queue) {
  device_allocator().recordStream(tensor.storage().data_ptr(),
                                  c10::Stream(c10::Stream::UNSAFE, tensor.device(), queue));
}

void may_be_refused(const char* what) {
  TORCH_CHECK(!faults::injected(faults::Fault::copy), faults::message(what));
}

size_t byte_count(const Tensor& tensor) { return static_cast<size_t>(tensor.numel()) * tensor.itemsize(); }

// The engine's own host memory is page-locked, and only the engine copies memory asynchronously that does not
// come from pin_memory().
sim::HostMemory kind_of(const void* host, bool asynchronous) {
  return asynchronous || is_pinned_address(host) ? sim::HostMemory::pinned : sim::HostMemory::pageable;
}

// A program's asynchronous copy takes its time on the queue, but its bytes arrive at once. A program that
// overwrites a batch, or reads a result, before it has waited for the copy fails on a GPU at random, but
// never here.
void finish(sim::Accelerator& device, sim::QueueIndex queue, const void* host, bool asynchronous) {
  if (!asynchronous) return device.synchronize(queue);
  if (is_pinned_address(host)) device.publish(queue);
}

void copy_bytes_from_host(const Tensor& to, const Tensor& from, bool asynchronous) {
  may_be_refused("a copy from the host");
  const c10::DeviceIndex index = to.device().index();
  const sim::QueueIndex queue = current_queue(index);
  sim::Accelerator& device = accelerator(index);
  const void* const source = from.const_data_ptr();
  device.copy(queue, to.data_ptr(), source, byte_count(to), Direction::in, kind_of(source, asynchronous));
  finish(device, queue, source, asynchronous);
}

void copy_bytes_to_host(const Tensor& to, const Tensor& from, bool asynchronous) {
  may_be_refused("a copy to the host");
  const c10::DeviceIndex index = from.device().index();
  const sim::QueueIndex queue = current_queue(index);
  sim::Accelerator& device = accelerator(index);
  void* const target = to.data_ptr();
  device.copy(queue, target, from.const_data_ptr(), byte_count(to), Direction::out,
              kind_of(target, asynchronous));
  finish(device, queue, target, asynchronous);
}

void copy_bytes_between(const Tensor& to, const Tensor& from) {
  may_be_refused("a copy between accelerators");
  const c10::DeviceIndex source_index = from.device().index();
  const c10::DeviceIndex index = to.device().index();
  sim::Accelerator& source = accelerator(source_index);
  const sim::QueueIndex source_queue = current_queue(source_index);
  if (index == source_index) {
    source.copy(source_queue, to.data_ptr(), from.const_data_ptr(), byte_count(to), Direction::within);
    note_kernel({.bytes = 2.0 * static_cast<double>(byte_count(to))});
    return;
  }
  sim::Accelerator& destination = accelerator(index);
  const sim::QueueIndex queue = current_queue(index);
  source.wait(source_queue, destination.record(queue));
  const Event copied =
      source.copy(source_queue, to.data_ptr(), from.const_data_ptr(), byte_count(to), Direction::peer);
  destination.wait(queue, copied);
}

// Copies by a kernel that converts, broadcasts and strides. Both ends are on one accelerator.
void copy_by_kernel(const Tensor& to, const Tensor& from) {
  KernelCall call(has_data() ? Faces::bytes : Faces::shapes);
  Tensor to_face = call.borrow(to, 0, /*written=*/true);
  Tensor from_face = call.borrow(from, 1, /*written=*/false);
  call.begin(/*host_result=*/false);
  if (has_data()) {
    at::native::copy_(to_face, from_face);
  } else {
    to_face.copy_(from_face);
  }
  call.computed();
  to_face.reset();
  from_face.reset();
  call.end({}, "aten::copy_");
}

Tensor dense_like(const Tensor& shape, const Tensor& type, c10::Device device) {
  return at::empty(shape.sizes(), type.options().device(device).memory_format(c10::MemoryFormat::Contiguous));
}

void copy_from_host(const Tensor& to, const Tensor& from, bool asynchronous) {
  if (same_bytes(to, from)) return copy_bytes_from_host(to, from, asynchronous);
  const Tensor source = from.contiguous().resolve_conj().resolve_neg();
  const Tensor staged = dense_like(source, source, to.device());
  copy_bytes_from_host(staged, source, /*asynchronous=*/false);
  copy_by_kernel(to, staged);
}

void copy_to_host(const Tensor& to, const Tensor& from, bool asynchronous) {
  if (same_bytes(to, from)) return copy_bytes_to_host(to, from, asynchronous);
  const Tensor staged = dense_like(to, to, from.device());
  copy_by_kernel(staged, from);
  used_on(staged, current_queue(from.device().index()));
  if (same_bytes(to, staged)) return copy_bytes_to_host(to, staged, /*asynchronous=*/false);
  const Tensor arrived = dense_like(to, to, to.device());
  copy_bytes_to_host(arrived, staged, /*asynchronous=*/false);
  const_cast<Tensor&>(to).copy_(arrived);
}

void copy_between(const Tensor& to, const Tensor& from) {
  if (same_bytes(to, from)) {
    at::assert_no_partial_overlap(to, from);  // A kernel would check this.
    return copy_bytes_between(to, from);
  }
  if (to.device() == from.device()) return copy_by_kernel(to, from);
  // The bytes cross in the source's dtype and shape, so that no more than these cross; the kernel runs at the
  // destination.
  Tensor source = from;
  if (!from.is_contiguous() || from.is_conj() || from.is_neg()) {
    source = dense_like(from, from, from.device());
    copy_by_kernel(source, from);
  }
  const Tensor staged = dense_like(source, source, to.device());
  copy_bytes_between(staged, source);
  // The source may be freed now, but the copy that reads it is on its own device's stream.
  used_on(source, current_queue(source.device().index()));
  copy_by_kernel(to, staged);
}

// A copy of no bytes launches no kernel, so its shapes are checked here, as kernels check them.
void check_shapes(const Tensor& to, const Tensor& from) {
  const std::vector<int64_t> both = at::infer_size(to.sizes(), from.sizes());
  TORCH_CHECK(to.sizes() == c10::IntArrayRef(both), "output with shape ", to.sizes(),
              " doesn't match the broadcast shape ", c10::IntArrayRef(both));
}

void transfer(const Tensor& to, const Tensor& from, bool non_blocking) {
  if (to.is_same(from)) return;
  check_dense(to);
  check_dense(from);
  TORCH_CHECK(on_accelerator(to) || on_accelerator(from), "neither ", to.device(), " nor ", from.device(),
              " is a simulated accelerator");
  if (to.numel() == 0 && from.numel() == 0) return check_shapes(to, from);
  if (on_accelerator(to) && on_accelerator(from)) return copy_between(to, from);
  const c10::Device host = on_accelerator(to) ? from.device() : to.device();
  TORCH_CHECK(host.is_cpu(), "cannot copy between a simulated accelerator and ", host);
  if (on_accelerator(to)) return copy_from_host(to, from, non_blocking);
  copy_to_host(to, from, non_blocking);
}

Tensor& copy_(Tensor& self, const Tensor& source, bool non_blocking) {
  transfer(self, source, non_blocking);
  return self;
}

Tensor copy_from(const Tensor& self, const Tensor& destination, bool non_blocking) {
  transfer(destination, self, non_blocking);
  return destination;
}

Tensor copy_from_and_resize(const Tensor& self, const Tensor& destination) {
  destination.resize_(self.sizes());
  transfer(destination, self, /*non_blocking=*/false);
  return destination;
}

}  // namespace

void register_copies(torch::Library& library) {
  library.impl("copy_", TORCH_FN(copy_));
  library.impl("_copy_from", TORCH_FN(copy_from));
  library.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
}

}  // namespace innkeeper::torch_layer::sim_backend
