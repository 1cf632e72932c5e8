// Operators that PyTorch composes of others, and that compare their operands' devices, or the device of
// `out`, before any of those runs. Here CPU operands beside managed ones are moved first
// (operator/mixed_move.h), and written ones are copied back. All other composed operators move operands in
// the operators of which they are composed.
//
// rms_norm is not listed, because models call it in each layer, and the check of its operands would cost time
// each time. Only a CPU input with a managed weight differs: its result stays on the CPU.
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <array>
#include <optional>
#include <utility>

#include "torch/kernels/custom_kernels.h"
#include "torch/operator/mixed_move.h"

namespace innkeeper::torch_layer {
namespace {

constexpr std::array<const char*, 45> kCompareDevices = {
    "ctc_loss.IntList",
    "ctc_loss.Tensor",
    "cartesian_prod",
    "chain_matmul.out",
    "diff.out",
    "gradient.tensorarray",
    "inner",
    "inner.out",
    "istft",
    "linalg_cond.out",
    "linalg_cond.p_str_out",
    "linalg_matrix_norm.out",
    "linalg_matrix_norm.str_ord_out",
    "linalg_matrix_power.out",
    "linalg_matrix_rank.atol_rtol_float_out",
    "linalg_matrix_rank.atol_rtol_tensor_out",
    "linalg_matrix_rank.out",
    "linalg_matrix_rank.out_tol_tensor",
    "linalg_matrix_rank.tol_tensor",
    "linalg_multi_dot",
    "linalg_multi_dot.out",
    "linalg_norm.ord_str_out",
    "linalg_norm.out",
    "linalg_pinv.atol_rtol_float_out",
    "linalg_pinv.out",
    "linalg_pinv.out_rcond_tensor",
    "linalg_tensorinv.out",
    "linalg_tensorsolve.out",
    "linalg_vecdot.out",
    "meshgrid",
    "meshgrid.indexing",
    "nanquantile",
    "nanquantile.out",
    "nanquantile.scalar_out",
    "nuclear_norm.dim_out",
    "nuclear_norm.out",
    "quantile",
    "quantile.out",
    "quantile.scalar_out",
    "special_ndtr.out",
    "stft",
    "stft.center",
    "take_along_dim",
    "take_along_dim.out",
    "tensordot.out",
};

bool is_written(const c10::OperatorHandle& op, size_t argument) {
  const c10::AliasInfo* alias = op.schema().arguments()[argument].alias_info();
  return alias != nullptr && alias->isWrite();
}

// Whether the tensor moves. A tensor without dimensions does, too, because these operators compare its device
// as well.
bool moves(const at::Tensor& x) { return x.defined() && x.device().is_cpu(); }

// The device of the first managed operand, if there is one and a CPU operand must move to it.
std::optional<c10::Device> device_to_move_to(c10::ArrayRef<c10::IValue> operands) {
  std::optional<c10::Device> device;
  bool mixed = false;
  const auto look = [&](const at::Tensor& x) {
    mixed |= moves(x);
    if (!device && x.defined() && is_managed(x)) device = x.device();
  };
  for (const c10::IValue& value : operands) {
    if (value.isTensor()) look(value.toTensor());
    if (!value.isTensorList()) continue;
    for (const c10::IValue& element : value.toListRef()) look(element.toTensor());
  }
  return mixed && moves_cpu_tensors() ? device : std::nullopt;
}

// The CPU operands of one call, moved to the device. After the call, written ones are copied back.
class Moved {
 public:
  Moved(const c10::OperatorHandle& op, c10::Device device, torch::jit::Stack& stack)
      : op_(op), device_(device), stack_(stack) {
    const size_t count = op.schema().arguments().size();
    const size_t first = stack.size() - count;
    for (size_t i = 0; i < count; ++i) {
      c10::IValue& value = stack[first + i];
      if (value.isTensor()) {
        value = moved(value.toTensor(), is_written(op, i));
      } else if (value.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const at::Tensor& x : value.toTensorVector()) list.push_back(moved(x, false));
        value = std::move(list);
      }
    }
  }

  // Copies the written operand back. None of these operators writes more than one tensor, which it returns.
  void give_back() {
    if (!written_.defined()) return;
    const at::Tensor result = stack_.back().toTensor();
    if (written_.sizes() != result.sizes()) written_.resize_(result.sizes());
    written_.copy_(result);
    stack_.back() = written_;
  }

 private:
  at::Tensor moved(const at::Tensor& x, bool written) {
    if (!moves(x)) return x;
    if (written) written_ = x;
    return note_and_move(op_.schema().name(), x, device_);
  }

  const c10::OperatorHandle& op_;
  const c10::Device device_;
  torch::jit::Stack& stack_;
  at::Tensor written_;
};

void compose_of_moved(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto operands = torch::jit::last(*stack, op.schema().arguments().size());
  std::optional<Moved> moved;
  if (const auto device = device_to_move_to(operands)) [[unlikely]]
    moved.emplace(op, *device, *stack);
  op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
  if (moved) moved->give_back();
}

}  // namespace

void register_composed_moves() {
  for (const char* name : kCompareDevices) {
    // Autograd records the moves; in inference mode the dispatcher uses the other key.
    for (const c10::DispatchKey key : {kManagedKey, kManagedAutogradKey})
      kernels_for("aten", key).impl(name, torch::CppFunction::makeFromBoxedFunction<&compose_of_moved>());
  }
}

}  // namespace innkeeper::torch_layer
