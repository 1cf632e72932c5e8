// Decides for operands on several devices. Some operators take CPU tensors beside managed ones, as CUDA's do.
// Others have them moved (mixed_move.h), or throw an error.
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "torch/memory/device_index.h"
#include "torch/operator/cpu_gradient.h"
#include "torch/operator/device_check.h"
#include "torch/operator/fallback.h"
#include "torch/operator/mixed_devices.h"
#include "torch/operator/mixed_move.h"

namespace innkeeper::torch_layer {
namespace {

using Kind = Parameter::Kind;

// Throws if a managed generator is the only reason for which the dispatcher chose this device.
void refuse_foreign_draw(const ManagedOp& op, c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& value : arguments) {
    if (!value.isGenerator() || value.toGenerator().device().type() != kManagedType) continue;
    TORCH_CHECK(false, "Expected a 'cpu' device type for generator but found '", kManagedType,
                "' (when running ", op.signature->op.schema().name(), ")");
  }
}

// Operators that take CPU tensors work on their first operand, which must be managed.
void refuse_foreign_self(const ManagedOp& op, const c10::IValue& self) {
  if (!self.isTensor() || is_managed(self.toTensor())) return;
  if (self.toTensor().device().is_cpu() && moves_cpu_tensors()) throw MixedOperands{};
  const c10::Device device = self.toTensor().device();
  const std::string& name = op.signature->op.schema().name();
  TORCH_CHECK_INDEX(name.find("index") == std::string::npos, "indices should be either on ", device.type(),
                    " or on the same device as the indexed tensor (", device.type(), "), but some are on ",
                    c10::Device(kManagedType), ": take indices.cpu()");
  DeviceCheck::refuse(name, device, managed_device());
}

// The gradient of a CPU operand arises on the managed device, so the operand is moved as it is for other
// operators.
void move_what_needs_a_gradient(const ManagedOp& op, c10::ArrayRef<c10::IValue> arguments) {
  if (!moves_cpu_tensors()) return;
  for (size_t i = 1; i < arguments.size(); ++i) {
    const c10::IValue& value = arguments[i];
    if (op.signature->args[i].kind != Kind::tensor || !value.isTensor()) continue;
    const at::Tensor& x = value.toTensor();
    if (moves_beside_managed(x) && x.requires_grad()) throw MixedOperands{};
  }
}

// Operators that take CPU operands refuse managed operands of another device index, as CUDA's operators do.
void refuse_other_index(const ManagedOp& op, c10::ArrayRef<c10::IValue> arguments) {
  if (!has_device_per_node()) return;
  DeviceCheck check;
  const auto look = [&](const at::Tensor& x) {
    if (is_managed(x)) check.look_at(x, false);
  };
  for (const c10::IValue& value : arguments) {
    if (value.isTensor()) look(value.toTensor());
    if (!value.isTensorList() && !value.isOptionalTensorList()) continue;
    for (const c10::IValue& element : value.toListRef())
      if (element.isTensor()) look(element.toTensor());
  }
  check.refuse_mixed(op.signature->op.schema().name());
}

DeviceCheck devices_of(const ManagedOp& op, c10::ArrayRef<c10::IValue> arguments) {
  DeviceCheck check;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = arguments[i];
    const Parameter& arg = op.signature->args[i];
    if (arg.kind == Kind::tensor) {
      // Scalars as a tensor: CUDA requires them on the CPU.
      if (static_cast<int>(i) == op.signature->scalars_arg) continue;
      if (value.isTensor()) check.look_at(value.toTensor(), arg.written);
    } else if (arg.kind == Kind::tensor_list && value.isTensorList()) {
      const auto list = value.toTensorList();
      for (size_t k = 0; k < list.size(); ++k) check.look_at(list.get(k), arg.written);
    }
  }
  return check;
}

// Whether PyTorch's kernel for all devices runs the operator behind a _foreach_* once for each element.
bool has_kernel_for_each(const c10::OperatorHandle& op) {
  return op.schema().name().starts_with("aten::_foreach_") &&
         op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
}

}  // namespace

void refuse_mixed_devices(const ManagedOp& op, c10::ArrayRef<c10::IValue> arguments) {
  if (!op.signature->aten) return;
  if (op.takes_cpu_operands) {
    refuse_foreign_self(op, arguments[0]);
    move_what_needs_a_gradient(op, arguments);
    return refuse_other_index(op, arguments);
  }
  const DeviceCheck check = devices_of(op, arguments);
  check.refuse_mixed(op.signature->op.schema().name());
  if (!check.any_managed() && op.signature->draws) refuse_foreign_draw(op, arguments);
}

bool run_one_by_one(const ManagedOp& op, torch::jit::Stack* stack) {
  const c10::OperatorHandle& handle = op.signature->op;
  const DeviceCheck check = devices_of(op, torch::jit::last(*stack, op.signature->args.size()));
  if (!check.mixed()) [[likely]]
    return false;
  if (!has_kernel_for_each(handle)) check.refuse_mixed(handle.schema().name());
  handle.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, *stack);
  for (const c10::IValue& results : torch::jit::last(*stack, handle.schema().returns().size())) {
    if (!results.isTensorList()) continue;
    for (const at::Tensor& result : results.toTensorVector()) move_gradients_of(result);
  }
  return true;
}

void DeviceCheck::move_or_refuse(std::string_view op, c10::Device first, c10::Device other) {
  if ((first.is_cpu() || other.is_cpu()) && moves_cpu_tensors()) throw MixedOperands{};
  refuse(op, first, other);
}

void DeviceCheck::refuse(std::string_view op, c10::Device first, c10::Device other) {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", first,
              " and ", other, "! (when running ", op, ")");
}

}  // namespace innkeeper::torch_layer
