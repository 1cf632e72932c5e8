// Operators that PyTorch composes of others, and that compare their operands' devices before any of those
// runs. CPU operands beside managed ones are moved first (operator/mixed_move.h). All others move at the
// operators that they are composed of. Not rms_norm, which models call in each layer: it would pay for the
// look at its operands, and only a CPU input with a managed weight is amiss, whose result stays on the CPU.
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <array>
#include <optional>
#include <string>

#include "torch/kernels/own_kernels.h"
#include "torch/operator/mixed_move.h"

namespace innkeeper::torch_layer {
namespace {

constexpr std::array<const char*, 15> kCompareDevices = {
    "ctc_loss.IntList",
    "ctc_loss.Tensor",
    "cartesian_prod",
    "gradient.tensorarray",
    "inner",
    "istft",
    "linalg_matrix_rank.tol_tensor",
    "linalg_multi_dot",
    "meshgrid",
    "meshgrid.indexing",
    "nanquantile",
    "quantile",
    "stft",
    "stft.center",
    "take_along_dim",
};

// The device of the first managed operand, if there is one and a CPU operand is to move to it.
std::optional<c10::Device> device_to_move_to(c10::ArrayRef<c10::IValue> operands) {
  std::optional<c10::Device> device;
  bool mixed = false;
  const auto look = [&](const at::Tensor& x) {
    mixed |= moves_beside_managed(x);
    if (!device && x.defined() && is_managed(x)) device = x.device();
  };
  for (const c10::IValue& value : operands) {
    if (value.isTensor()) look(value.toTensor());
    if (!value.isTensorList()) continue;
    for (const c10::IValue& element : value.toListRef()) look(element.toTensor());
  }
  return mixed && moves_cpu_tensors() ? device : std::nullopt;
}

void compose_of_moved(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  if (const auto device = device_to_move_to(torch::jit::last(*stack, count))) [[unlikely]] {
    const auto moved = [&](const at::Tensor& x) {
      return moves_beside_managed(x) ? note_and_move(op.schema().name(), x, *device) : x;
    };
    for (size_t i = stack->size() - count; i < stack->size(); ++i) {
      c10::IValue& value = (*stack)[i];
      if (value.isTensor()) value = moved(value.toTensor());
      if (!value.isTensorList()) continue;
      c10::List<at::Tensor> list;
      for (const at::Tensor& x : value.toTensorVector()) list.push_back(moved(x));
      value = std::move(list);
    }
  }
  op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
}

}  // namespace

void register_composed_moves() {
  for (const char* name : kCompareDevices) {
    // Autograd records the moves; without it, in inference mode, the other key is asked.
    for (const c10::DispatchKey key : {kManagedKey, kManagedAutogradKey})
      kernels_for("aten", key).impl(name, torch::CppFunction::makeFromBoxedFunction<&compose_of_moved>());
  }
}

}  // namespace innkeeper::torch_layer
