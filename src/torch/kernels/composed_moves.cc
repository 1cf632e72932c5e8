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

bool is_cpu_operand(const at::Tensor& x) { return x.defined() && x.device().is_cpu() && x.dim() > 0; }

// Calls `look` with each tensor among the operands, and puts what it gives in the tensor's place.
template <class Look>
void for_each_tensor(c10::ArrayRef<c10::IValue> operands, const Look& look) {
  for (const c10::IValue& operand : operands) {
    auto& value = const_cast<c10::IValue&>(operand);  // of the caller's stack
    if (value.isTensor()) {
      value = look(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& x : value.toTensorVector()) list.push_back(look(x));
      value = std::move(list);
    }
  }
}

void compose_of_moved(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto operands = torch::jit::last(*stack, op.schema().arguments().size());
  std::optional<c10::Device> device;
  bool mixed = false;
  for_each_tensor(operands, [&](const at::Tensor& x) {
    mixed |= is_cpu_operand(x);
    if (!device && x.defined() && is_managed(x)) device = x.device();
    return x;
  });
  if (mixed && device && moves_cpu_tensors()) {
    for_each_tensor(operands, [&](const at::Tensor& x) {
      return is_cpu_operand(x) ? note_and_move(op.schema().name(), x, *device) : x;
    });
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
