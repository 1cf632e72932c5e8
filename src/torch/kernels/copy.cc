#include "torch/kernels/copy.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "torch/errors.h"
#include "torch/memory/real_memory.h"
#include "torch/operator/operator_call.h"
#include "torch/operator/soft_placement.h"
#include "torch/operator/unseen.h"

namespace innkeeper::torch_layer {
namespace {

// Where bytes that leave for the CPU are read: on the host if they are there, else on the owner.
NodeId where_to_read(Runtime& runtime, Block& block, NodeId fallback) {
  Engine& engine = runtime.engine();
  if (block.size() == Bytes(0) || engine.has_replica(block, engine.host())) return engine.host();
  for (const NodeId node : engine.computing_nodes()) {
    if (engine.has_replica(block, node)) return node;
  }
  if (engine.disk() != kNoNode && engine.has_replica(block, engine.disk())) return engine.host();
  return fallback;
}

// Where bytes from elsewhere arrive: where the target is, its real device's node, or the thread's home.
NodeId where_to_write(Runtime& runtime, const OperatorCall& call, const at::Tensor& source, Block& target) {
  Engine& engine = runtime.engine();
  for (const NodeId node : engine.computing_nodes()) {
    if (engine.has_replica(target, node)) return node;
  }
  const NodeId there = runtime.node_of(source.device());
  return there != kNoNode && !runtime.backend(there).host ? there : call.choose();
}

}  // namespace

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  OperatorCall call("aten::copy_");
  const bool from_managed = is_managed(source);
  const bool to_managed = is_managed(target);
  TORCH_CHECK(from_managed || to_managed, "copy_: expected a managed tensor, got ", source.device(), " and ",
              target.device());
  size_t source_index = 0;
  size_t target_index = 0;
  NodeId node = kNoNode;
  if (from_managed) source_index = call.borrow(source, false);
  if (to_managed) target_index = call.borrow(target, true);
  if (!to_managed && target.device().is_cpu()) {
    node = where_to_read(call.runtime(), *block_of(source), call.choose());
  } else if (!from_managed) {
    node = where_to_write(call.runtime(), call, source, *block_of(target));
  } else {
    node = call.choose();
  }
  call.begin(node);
  const at::Tensor& real_source = from_managed ? call.real(source_index) : source;
  const at::Tensor& real_target = to_managed ? call.real(target_index) : target;
  // CUDA's allocator of pinned memory knows which copies still read it, so that one need not be waited for.
  // Who copies to the CPU reads next, and knows of no queue of ours.
  const bool may_go_on =
      (from_managed && to_managed) || (!from_managed && call.runtime().backend(node).kind == "cuda");
  try {
    real_target.copy_(real_source, non_blocking && may_go_on);
  } catch (const c10::AcceleratorError& error) {
    call.throw_device_failure(error);
  }
  call.finish();
  return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  target.resize_(source.sizes());
  return copy_from(source, target, false);
}

at::Scalar read_scalar(const at::Tensor& self) {
  OperatorCall call("aten::_local_scalar_dense");
  const size_t index = call.borrow(self, false);
  call.begin(where_to_read(call.runtime(), *block_of(self), call.choose()));
  try {
    at::Scalar value = at::_local_scalar_dense(call.real(index));
    call.finish();
    return value;
  } catch (const c10::AcceleratorError& error) {
    call.throw_device_failure(error);
  }
}

void resize_storage(const c10::Storage& storage, size_t size) {
  c10::StorageImpl& handle = *storage.unsafeGetStorageImpl();
  Runtime& runtime = torch_layer::runtime();
  Engine& engine = runtime.engine();
  const auto wanted = Bytes(static_cast<int64_t>(size));
  TORCH_CHECK(handle.resizable() && owns_block(handle), "Trying to resize storage that is not resizable");
  Block* block = block_of(handle);
  if (engine.resize_unwritten(*block, wanted).ok()) {
    resize_handle(handle, wanted);
    return;
  }
  // Fresh memory on the node where the bytes are, and what fits of them; finish() hands it to the engine.
  const Unseen unseen;
  at::Tensor whole = at::empty({0}, at::TensorOptions().dtype(at::kByte).device(managed_device()));
  whole.unsafeGetTensorImpl()->set_storage_keep_dtype(storage);
  whole.unsafeGetTensorImpl()->set_sizes_contiguous({block->size().count()});
  OperatorCall call("aten::resize_");
  const size_t index = call.borrow(whole, true);
  NodeId node = call.choose();
  if (block->size() + wanted > engine.budget(node)) {
    const NodeId other = instead_of(runtime, node);
    if (other != node) {
      warn_of_host("aten::resize_", to_string(wanted) + " beside the " + to_string(block->size()) +
                                        " that they replace do not fit " + engine.device(node).name());
    }
    node = other;
  }
  call.begin(node);
  try {
    const at::Tensor& real = call.real(index);
    const int64_t kept = std::min(wanted, block->size()).count();
    at::Tensor fresh = at::empty({wanted.count()}, real.options());
    if (kept != 0) fresh.narrow(0, 0, kept).copy_(real.narrow(0, 0, kept));
    c10::StorageImpl& target = *real.storage().unsafeGetStorageImpl();
    c10::StorageImpl& made = *fresh.storage().unsafeGetStorageImpl();
    target.set_data_ptr_noswap(made.set_data_ptr(c10::DataPtr(nullptr, made.device())));
    target.set_nbytes(size);
    real.unsafeGetTensorImpl()->set_sizes_contiguous({wanted.count()});
  } catch (const c10::OutOfMemoryError& error) {
    TORCH_CHECK_WITH(OutOfMemoryError, false, "aten::resize_: ", error.what_without_backtrace());
  }
  call.finish();
}

}  // namespace innkeeper::torch_layer
