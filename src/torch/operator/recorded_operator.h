// A call of a pure operator, kept so that its results can be computed again (docs/design/recompute.md): the
// recorded call that the engine follows.
//
// It keeps no operand alive: until a result is dropped the program may let go of what it likes. Pure
// operators alone are kept (signature.h), whose operands are plain managed tensors, and numbers.
//
// Thread safety: immutable, but for its counts of references.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Storage.h>

#include <memory>
#include <optional>
#include <vector>

#include "residency/block/recorded_call.h"
#include "torch/operator/fallback.h"
#include "torch/operator/operator_call.h"
#include "torch/operator/process_settings.h"

namespace innkeeper::torch_layer {

// What of a thread decides the bits of the host's kernels beside their operands.
struct HostKernels {
  int threads;             // that part their work among them
  bool denormals_flushed;  // they may take the smallest numbers for none

  static HostKernels now();
  void set() const;
};

class RecordedOperator {
 public:
  // Null where it cannot be kept. `arguments`: the operator's, whose operands the call has pinned.
  static std::shared_ptr<const RecordedOperator> of(const ManagedOp& op, c10::ArrayRef<c10::IValue> arguments,
                                                    NodeId node);

  // The operands, held, as many as are there still.
  std::vector<c10::Storage> hold() const;
  std::vector<RecordedCall::Input> inputs() const;
  // Runs it once more, as if nothing had changed since: no mode is on, and the threads are as many. `held`:
  // what hold() gave.
  torch::jit::Stack run(const std::vector<c10::Storage>& held) const;
  // Runs it once more on operands that have not changed, and compares. nullopt: an operand is gone, or there
  // is no room. Called while no lock is held.
  std::optional<bool> gives_again(const std::vector<at::Tensor>& results) const;
  NodeId node() const { return node_; }
  const ManagedOp& op() const { return op_; }
  // Run again now it would compute as it did.
  bool computes_alike() const { return process_ == ProcessSettings::now(); }
  // And will go on doing so.
  bool in_force() const { return !SettingChange::under_way() && computes_alike(); }

 private:
  struct Operand {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    Block* block;
    uint32_t writes;
    caffe2::TypeMeta dtype;
    c10::SmallVector<int64_t, 4> sizes, strides;
    int64_t offset;
    bool is_number;
  };

  // The next operand stands there, or a list of so many; or none.
  enum class Place : uint8_t { none, one, list };
  struct Argument {
    c10::IValue value;
    Place tensors;
  };

  RecordedOperator(const ManagedOp& op, NodeId node);
  bool keep(const at::Tensor& managed);
  bool keep(const c10::IValue& argument, Parameter::Kind kind);
  static at::Tensor tensor_over(const Operand& operand, const c10::Storage& storage);

  const ManagedOp op_;
  const NodeId node_;
  const HostKernels host_ = HostKernels::now();
  const ProcessSettings process_ = ProcessSettings::now();
  std::vector<Argument> arguments_;
  std::vector<Operand> operands_;  // in the order of the arguments
};

// The engine's RecomputeIndex.
std::unique_ptr<RecordedCall> recorded_call_of(Block& block);

}  // namespace innkeeper::torch_layer
