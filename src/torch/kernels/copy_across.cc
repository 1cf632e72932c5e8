#include "torch/kernels/copy_across.h"

#include <ATen/ATen.h>

#include "torch/accelerator/compute_queue.h"
#include "torch/memory/device_index.h"
#include "torch/memory/real_memory.h"
#include "torch/operator/drive.h"
#include "torch/registry/unseen.h"

namespace innkeeper::torch_layer {
namespace {

bool is_dense_and_direct(const at::Tensor& x) {
  return x.is_non_overlapping_and_dense() && !x.is_conj() && !x.is_neg() && !x._is_zerotensor();
}

// A pin on a replica, if the replica is valid now.
class TriedPin {
 public:
  TriedPin(Engine& engine, Block& block, NodeId node)
      : engine_(engine), node_(node), held_(block.replica(node).word.try_pin(/*write=*/false)) {
    access_.block = &block;
    access_.pinned = held_;
  }
  ~TriedPin() {
    if (held_) engine_.release(node_, std::span(&access_, 1));
  }
  TriedPin(const TriedPin&) = delete;
  TriedPin& operator=(const TriedPin&) = delete;
  bool held() const { return held_; }

 private:
  Engine& engine_;
  NodeId node_;
  Access access_{nullptr, false, false};
  bool held_;
};

// A copy between two nodes of tensors that one copy of memory makes equal, so that no kernel needs memory.
class AcrossCall : public WholeAndOnce {
 public:
  AcrossCall(const at::Tensor& source, const at::Tensor& target, bool non_blocking, NodeId from)
      : source_(source), target_(target), non_blocking_(non_blocking), from_(from) {}

  static std::string_view name() { return "aten::copy_"; }
  void collect(OperatorCall& call) const { call.borrow(target_, true); }
  NodeId node(OperatorCall& call) const { return call.choose(); }

  void compute(OperatorCall& call) {
    Runtime& machine = call.runtime();
    Block& block = *block_of(source_);
    const TriedPin pin(machine.engine(), block, from_);
    if (!pin.held()) return;
    c10::TensorImpl& impl = *source_.unsafeGetTensorImpl();
    const at::Tensor real = real_tensor(machine, impl, *impl.storage().unsafeGetStorageImpl(), block, from_,
                                        c10::InferenceMode::is_enabled());
    const OnComputeQueue queue(machine.backend(from_).device);
    call.real(0).copy_(real, non_blocking_);
    done_ = true;
  }
  bool result() const { return done_; }

 private:
  const at::Tensor& source_;
  const at::Tensor& target_;
  const bool non_blocking_;
  const NodeId from_;
  bool done_ = false;
};

// The node from which to read the source: the node that it prefers, else another computing node that has it.
// Not the host, where a copy may still be arriving. kNoNode if there is none, or if the target's node has the
// bytes already.
NodeId node_to_read(const at::Tensor& source, const at::Tensor& target) {
  const Engine& engine = runtime().engine();
  const Block& block = *block_of(source);
  if (engine.table().has_replica(block, node_at(target.device().index()))) return kNoNode;
  const NodeId preferred = node_at(source.device().index());
  if (engine.table().has_replica(block, preferred)) return preferred;
  for (const NodeId node : engine.computing_nodes())
    if (engine.table().has_replica(block, node)) return node;
  return kNoNode;
}

bool copy_equal_layout(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  const NodeId from = node_to_read(source, target);
  if (from == kNoNode) return false;
  AcrossCall call(source, target, non_blocking, from);
  return drive(call);
}

}  // namespace

bool has_equal_layout(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
         is_dense_and_direct(a) && is_dense_and_direct(b);
}

bool copy_across(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  if (source.device() == target.device() || !is_managed(source) || !is_managed(target)) return false;
  if (source.layout() != c10::kStrided || target.layout() != c10::kStrided || source.is_quantized())
    return false;
  if (source.numel() == 0) return false;
  if (has_equal_layout(source, target)) return copy_equal_layout(source, target, non_blocking);
  if (node_to_read(source, target) == kNoNode) return false;
  // A kernel of the source's node makes the bytes dense, and one of the target's node does the remaining
  // conversion.
  const Unseen unseen;
  const at::Tensor dense = is_dense_and_direct(source)
                               ? source
                               : source.clone(at::MemoryFormat::Contiguous).resolve_conj().resolve_neg();
  const at::Tensor arrived =
      at::empty_strided(dense.sizes(), dense.strides(), dense.options().device(target.device()));
  if (!copy_equal_layout(dense, arrived, non_blocking)) return false;
  target.copy_(arrived);
  return true;
}

}  // namespace innkeeper::torch_layer
