// A recorded call of a pure operator, from which the engine can recompute its results
// (docs/design/recompute.md).
//
// It keeps no operand alive: until a result is discarded, the program may release any operand. Only pure
// operators are recorded (signature.h), whose operands are plain managed tensors and numbers.
//
// Thread safety: immutable, except for its reference counts.
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

// State of a thread that decides the bits of the host's kernels, besides their operands.
struct HostKernels {
  int threads;             // Number of threads that share a kernel's work.
  bool denormals_flushed;  // Whether kernels may treat denormal numbers as zero.

  static HostKernels now();
  void set() const;
};

class RecordedOperator {
 public:
  // Null if the call cannot be recorded. Requires: the operator has pinned the operands among `arguments`.
  static std::shared_ptr<const RecordedOperator> of(const ManagedOp& op, c10::ArrayRef<c10::IValue> arguments,
                                                    NodeId node);

  // Owners of the operands, in order, up to the first operand that has died.
  std::vector<c10::Storage> hold() const;
  std::vector<RecordedCall::Input> inputs() const;
  // Runs the call once more under the conditions of its first run: no mode of PyTorch's is on, and the host
  // kernels use as many threads. `held`: the result of hold().
  torch::jit::Stack run(const std::vector<c10::Storage>& held) const;
  // Runs the call once more on operands that have not changed, and compares the results. nullopt: an operand
  // is gone, or there is no free space. Requires: the caller holds no lock.
  std::optional<bool> gives_again(const std::vector<at::Tensor>& results) const;
  NodeId node() const { return node_; }
  const ManagedOp& op() const { return op_; }
  // Whether a run now would compute with the process settings of the first run.
  bool computes_alike() const { return process_ == ProcessSettings::now(); }
  // Whether it also will do so from now on: no setting is about to change.
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

  // Whether the next operand fills an argument (one), the next several fill a list (list), or the argument
  // has a value of its own (none).
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
  std::vector<Operand> operands_;  // Operands in the order of the arguments.
};

// The recorded call for the engine's RecomputeIndex; null if the block has none.
std::unique_ptr<RecordedCall> recorded_call_of(Block& block);

}  // namespace innkeeper::torch_layer
