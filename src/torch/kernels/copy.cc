#include "torch/kernels/copy.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <type_traits>

#include "residency/movement/pinned_copies.h"
#include "residency/movement/program_copy.h"
#include "torch/accelerator/backend.h"
#include "torch/accelerator/c10_device.h"
#include "torch/errors.h"
#include "torch/kernels/copy_across.h"
#include "torch/memory/device_index.h"
#include "torch/memory/pinned_memory.h"
#include "torch/memory/real_memory.h"
#include "torch/operator/drive.h"
#include "torch/registry/unseen.h"

namespace innkeeper::torch_layer {
namespace {

// The node from which bytes for the CPU are read: the host if they are there, else a node that holds them.
NodeId where_to_read(Runtime& runtime, Block& block, NodeId fallback) {
  Engine& engine = runtime.engine();
  if (block.size() == Bytes(0) || engine.table().has_replica(block, engine.host())) return engine.host();
  for (const NodeId node : engine.computing_nodes()) {
    if (engine.table().has_replica(block, node)) return node;
  }
  if (engine.disk() != kNoNode && engine.table().has_replica(block, engine.disk())) return engine.host();
  return fallback;
}

// The node for bytes from another device: the target's node, the node of the source's device, or the thread's
// preferred node.
NodeId where_to_write(Runtime& runtime, OperatorCall& call, const at::Tensor& source, Block& target) {
  Engine& engine = runtime.engine();
  if (has_device_per_node()) return call.choose();
  for (const NodeId node : engine.computing_nodes()) {
    if (engine.table().has_replica(target, node)) return node;
  }
  const NodeId there = runtime.node_of(source.device());
  return there != kNoNode && !runtime.backend(there).host ? there : call.choose();
}

// The node's device, if a copy may run on its copy queues (movement/program_copy.h). A program that does not
// use the name `cuda` may have its own tensors on a GPU, and its own streams that order accesses to
// page-locked memory.
C10Device* device_with_copy_queues(Runtime& runtime, NodeId node) {
  const NodeBackend& backend = runtime.backend(node);
  if (backend.host || (backend.accelerator->is_programs_too() && !has_device_per_node())) return nullptr;
  return dynamic_cast<C10Device*>(&runtime.engine().device(node));
}

// A copy between managed tensors, or between a managed tensor and one of another device.
class CopyCall : public WholeAndOnce {
 public:
  CopyCall(const at::Tensor& source, const at::Tensor& target, bool non_blocking)
      : source_(source), target_(target), non_blocking_(non_blocking) {}

  static std::string_view name() { return "aten::copy_"; }

  void collect(OperatorCall& call) const {
    TORCH_CHECK(from_managed_ || to_managed_, "copy_: expected a managed tensor, got ", source_.device(),
                " and ", target_.device());
    if (from_managed_) call.borrow(source_, false);
    if (!to_managed_) return;
    call.borrow(target_, true);
    call.take_index(target_.device().index());
  }

  NodeId node(OperatorCall& call) const {
    const NodeId node = node_with_space(call.runtime(), where(call));
    if (needs_no_kernel() && device_with_copy_queues(call.runtime(), node) != nullptr)
      call.use_queue(to_managed_ ? Queue::copy_in : Queue::copy_out);
    return node;
  }

  void compute(OperatorCall& call) const {
    const at::Tensor& source = from_managed_ ? call.real(0) : source_;
    const at::Tensor& target = to_managed_ ? call.real(from_managed_ ? 1 : 0) : target_;
    if (from_managed_ != to_managed_ && host_end().is_cpu() && host_end().has_storage()) {
      if (call.queue() != Queue::compute) return compute_on_copy_queue(call, target, source);
      Device& device = call.runtime().engine().device(call.node());
      throw_if_error(call.runtime().pinned_copies().order_after(device, Queue::compute, host_range()),
                     name());
    }
    // A program that copies to the CPU reads the bytes next, and knows no queue of the engine, so this copy
    // blocks.
    const Backend* const accelerator = call.runtime().backend(call.node()).accelerator;
    const bool may_go_on = (from_managed_ && to_managed_) ||
                           (!from_managed_ && accelerator != nullptr && accelerator->keeps_pinned_memory());
    target.copy_(source, non_blocking_ && may_go_on);
  }

  const at::Tensor& result() const { return target_; }

 private:
  NodeId where(OperatorCall& call) const {
    if (!to_managed_ && target_.device().is_cpu()) {
      return where_to_read(call.runtime(), *block_of(source_), call.choose());
    }
    if (!from_managed_) return where_to_write(call.runtime(), call, source_, *block_of(target_));
    return call.choose();
  }

  // The host, if a copy kernel's intermediate tensor (for a conversion or a gather) does not fit beside the
  // tensor at `node`. A tensor that the user has pinned is written there.
  NodeId node_with_space(Runtime& runtime, NodeId node) const {
    const bool on_host = from_managed_ == to_managed_ || !host_end().is_cpu() || runtime.backend(node).host;
    if (on_host || source_.numel() == 0 || has_equal_layout(source_, target_)) return node;
    Engine& engine = runtime.engine();
    const Block& block = *block_of(from_managed_ ? source_ : target_);
    const bool pinned = block.replica(node).user_pins != 0;
    const Bytes made(host_end().numel() * static_cast<int64_t>(host_end().element_size()));
    const bool fits = (pinned ? made : block.size() + made) <= engine.unpinned_budget(node);
    return fits || (pinned && to_managed_) ? node : engine.host();
  }

  const at::Tensor& host_end() const { return to_managed_ ? source_ : target_; }

  HostRange host_range() const {
    const at::Tensor& host = host_end();
    const bool written = !to_managed_;
    if (host.is_non_overlapping_and_dense()) return {host.const_data_ptr(), host.nbytes(), written};
    return {host.storage().data(), host.storage().nbytes(), written};
  }

  // Whether the call is one copy between page-locked and managed memory, for which the program need not wait.
  bool needs_no_kernel() const {
    if (!non_blocking_ || from_managed_ == to_managed_ || !host_end().is_cpu()) return false;
    return source_.numel() != 0 && has_equal_layout(source_, target_) &&
           is_pinned_address(host_end().const_data_ptr());
  }

  void compute_on_copy_queue(OperatorCall& call, const at::Tensor& target, const at::Tensor& source) const {
    C10Device& device = *device_with_copy_queues(call.runtime(), call.node());
    const Queue queue = call.queue();
    PinnedCopies& pinned = call.runtime().pinned_copies();
    ProgramCopy copy(call.runtime().engine().table(), call.node(), call.only_access());
    throw_if_error(copy.begin(), name());
    throw_if_error(pinned.order_after(device, queue, host_range()), name());
    const Result<Event> copied = device.copy_tensor(queue, target, source);
    throw_if_error(copied.status(), name());
    pinned.add(host_range(), copied.value());
    if (const Status ordered = copy.end(copied.value()); !ordered.ok()) {
      (void)copied.value()->synchronize();
      throw_status(ordered, name());
    }
  }

  const at::Tensor& source_;
  const at::Tensor& target_;
  const bool non_blocking_;
  const bool from_managed_ = is_managed(source_);
  const bool to_managed_ = is_managed(target_);
};

// Reads the one element of a tensor.
class ScalarCall : public WholeAndOnce {
 public:
  explicit ScalarCall(const at::Tensor& self) : self_(self) {}

  static std::string_view name() { return "aten::_local_scalar_dense"; }
  void collect(OperatorCall& call) const { call.borrow(self_, false); }
  NodeId node(OperatorCall& call) const {
    return where_to_read(call.runtime(), *block_of(self_), call.choose());
  }
  void compute(OperatorCall& call) { value_ = at::_local_scalar_dense(call.real(0)); }
  at::Scalar result() const { return value_; }

 private:
  const at::Tensor& self_;
  at::Scalar value_;
};

// Allocates fresh memory for a block on the node that holds its bytes, and copies the bytes that fit. The
// call's end hands the memory to the engine.
class ResizeCall : public WholeAndOnce {
 public:
  // `whole`: all bytes of the block.
  ResizeCall(const at::Tensor& whole, Bytes wanted) : whole_(whole), wanted_(wanted) {}

  static std::string_view name() { return "aten::resize_"; }
  void collect(OperatorCall& call) const { call.borrow(whole_, true); }

  NodeId node(OperatorCall& call) const {
    Runtime& runtime = call.runtime();
    Engine& engine = runtime.engine();
    const Bytes size = block_of(whole_)->size();
    const NodeId node = call.choose();
    if (size + wanted_ <= engine.budget(node)) return node;
    const NodeId other = instead_of(runtime, node);
    if (other != node) {
      warn_of_host(name(), to_string(wanted_) + " beside the " + to_string(size) +
                               " that they replace do not fit " + engine.device(node).name());
    }
    return other;
  }

  void compute(OperatorCall& call) const {
    const at::Tensor& real = call.real(0);
    const int64_t kept = std::min(wanted_, block_of(whole_)->size()).count();
    at::Tensor fresh = at::empty({wanted_.count()}, real.options());
    if (kept != 0) fresh.narrow(0, 0, kept).copy_(real.narrow(0, 0, kept));
    c10::StorageImpl& target = *real.storage().unsafeGetStorageImpl();
    c10::StorageImpl& made = *fresh.storage().unsafeGetStorageImpl();
    target.set_data_ptr_noswap(made.set_data_ptr(c10::DataPtr(nullptr, made.device())));
    target.set_nbytes(static_cast<size_t>(wanted_.count()));
    real.unsafeGetTensorImpl()->set_sizes_contiguous({wanted_.count()});
  }

  void result() const {}

 private:
  const at::Tensor& whole_;
  const Bytes wanted_;
};

}  // namespace

namespace {

// The tensor on the CPU, over a copy of all bytes of its block that is charged to no budget: for a reader
// while every node is full. Undefined if it cannot be made.
at::Tensor uncounted_copy(const at::Tensor& managed) {
  Runtime& machine = runtime();
  if (!machine.has_data() || !managed.has_storage() || managed.is_quantized() ||
      !owns_block(*managed.storage().unsafeGetStorageImpl()))
    return {};
  Block& block = *block_of(managed);
  if (block.size() == Bytes(0)) return {};
  const Unseen unseen;
  const at::TensorOptions on_cpu = at::TensorOptions().device(at::kCPU);
  at::Tensor bytes = at::empty({block.size().count()}, on_cpu.dtype(at::kByte));
  if (!machine.engine().requests().read(block, bytes.mutable_data_ptr()).ok()) return {};
  at::Tensor whole = at::empty({0}, on_cpu.dtype(managed.dtype()));
  whole.unsafeGetTensorImpl()->set_storage_keep_dtype(bytes.storage());
  copy_geometry(*managed.unsafeGetTensorImpl(), *whole.unsafeGetTensorImpl());
  return whole;
}

// Runs the call. If it finds no free space, reads the bytes from their present node, because reading needs no
// node's memory.
template <class Call, class Read>
auto drive_or_read(Call& call, const at::Tensor& managed, const Read& read)
    -> std::decay_t<decltype(drive(call))> {
  try {
    return drive(call);
  } catch (const c10::OutOfMemoryError&) {
    const at::Tensor copy = uncounted_copy(managed);
    if (!copy.defined()) throw;
    return read(copy);
  }
}

}  // namespace

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  if (copy_across(source, target, non_blocking)) return target;
  CopyCall call(source, target, non_blocking);
  if (!target.device().is_cpu()) return drive(call);
  return drive_or_read(call, source, [&](const at::Tensor& copy) -> at::Tensor {
    const Unseen unseen;
    target.copy_(copy);
    return target;
  });
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  target.resize_(source.sizes());
  return copy_from(source, target, false);
}

at::Scalar read_scalar(const at::Tensor& self) {
  ScalarCall call(self);
  return drive_or_read(call, self, [](const at::Tensor& copy) { return copy.item(); });
}

void resize_storage(const c10::Storage& storage, size_t size) {
  c10::StorageImpl& handle = *storage.unsafeGetStorageImpl();
  const auto wanted = Bytes(static_cast<int64_t>(size));
  TORCH_CHECK(handle.resizable() && owns_block(handle), "Trying to resize storage that is not resizable");
  Block* block = block_of(handle);
  if (runtime().engine().resize_unwritten(*block, wanted).ok()) {
    resize_handle(handle, wanted);
    return;
  }
  const Unseen unseen;
  at::Tensor whole =
      at::empty({0}, at::TensorOptions().dtype(at::kByte).device(device_at(storage.device().index())));
  whole.unsafeGetTensorImpl()->set_storage_keep_dtype(storage);
  whole.unsafeGetTensorImpl()->set_sizes_contiguous({block->size().count()});
  ResizeCall call(whole, wanted);
  drive(call);
}

}  // namespace innkeeper::torch_layer
