#include "torch/fallback.h"

#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>

#include <optional>

#include "torch/operator_call.h"
#include "torch/random_stream.h"

namespace innkeeper::torch_layer {
namespace {

using Kind = ArgPlan::Kind;

// Takes the managed tensors out of the arguments, then puts the real ones in their place.
class Arguments {
 public:
  Arguments(OperatorCall& call, const OpPlan& plan, torch::jit::Stack& stack)
      : call_(call), plan_(plan), first_(stack.size() - plan.args.size()), stack_(stack) {}

  void collect() {
    for (size_t i = 0; i < plan_.args.size(); ++i) {
      const ArgPlan& arg = plan_.args[i];
      const c10::IValue& value = stack_[first_ + i];
      if (arg.kind == Kind::tensor) {
        if (value.isTensor()) take(value.toTensor(), arg.written);
      } else if (arg.kind == Kind::tensor_list) {
        if (!value.isTensorList()) continue;
        const auto list = value.toTensorList();
        for (size_t k = 0; k < list.size(); ++k) take(list.get(k), arg.written);
      } else if (arg.kind == Kind::optional_tensor_list) {
        if (value.isNone()) continue;
        const auto list = value.toOptionalTensorList();
        for (size_t k = 0; k < list.size(); ++k) {
          const std::optional<at::Tensor> element = list.get(k);
          if (element.has_value()) take(*element, arg.written);
        }
      }
    }
  }

  void replace() {
    const NodeBackend& backend = call_.runtime().backend(call_.node());
    for (size_t i = 0; i < plan_.args.size(); ++i) {
      c10::IValue& value = stack_[first_ + i];
      switch (plan_.args[i].kind) {
        case Kind::tensor:
          if (value.isTensor()) value = real(value.toTensor());
          break;
        case Kind::tensor_list:
          if (value.isTensorList()) value = real_list(value.toTensorList());
          break;
        case Kind::optional_tensor_list:
          if (!value.isNone()) value = real_list(value.toOptionalTensorList());
          break;
        case Kind::generator: replace_generator(value); break;
        case Kind::device:
          if (value.isDevice() && value.toDevice().type() == kManagedType) value = backend.device;
          break;
        default: break;
      }
    }
  }

 private:
  void take(const at::Tensor& tensor, bool written) {
    if (is_managed(tensor)) call_.operand(tensor, written);
  }

  // Operands come in the order in which collect() took them.
  at::Tensor real(const at::Tensor& tensor) { return is_managed(tensor) ? call_.real(next_++) : tensor; }

  template <class Element>
  c10::List<Element> real_list(const c10::List<Element>& managed) {
    c10::List<Element> reals;
    reals.reserve(managed.size());
    for (size_t k = 0; k < managed.size(); ++k) {
      const Element element = managed.get(k);
      if constexpr (std::is_same_v<Element, at::Tensor>) {
        reals.push_back(real(element));
      } else {
        reals.push_back(element.has_value() ? Element(real(*element)) : element);
      }
    }
    return reals;
  }

  // An operator with a Generator argument is given the stream itself (decision 7).
  void replace_generator(c10::IValue& value) {
    at::Generator stream = current_stream().kernel_generator();
    if (!value.isNone()) {
      const at::Generator given = value.toGenerator();
      if (!given.defined() || given.device().type() != kManagedType) return;
      stream = kernel_generator_of(given);
    }
    value = generator_on(call_.runtime().backend(call_.node()).device, stream);
  }

  OperatorCall& call_;
  const OpPlan& plan_;
  const size_t first_;
  torch::jit::Stack& stack_;
  size_t next_ = 0;
};

// A simulated accelerator runs CPU kernels, and seems to have any.
bool has_kernel(const OpPlan& plan, const NodeBackend& backend) {
  return plan.op.hasComputedKernelForDispatchKey(backend.kind == "sim" ? c10::DispatchKey::CPU : backend.key);
}

// Whether the kernel is going to draw from PyTorch's default generator. `arguments`: the operator's.
bool draws(const ManagedOp& op, c10::ArrayRef<c10::IValue> arguments) {
  if (!op.draws_from_default_generator) [[likely]]
    return false;
  const int8_t dropout = op.plan->dropout_arg;
  return dropout < 0 || arguments[static_cast<size_t>(dropout)].toDouble() != 0;
}

void give_back(OperatorCall& call, c10::IValue& value) {
  if (value.isTensor()) {
    value = call.give_back(std::move(value).toTensor());
  } else if (value.isTensorList()) {
    const auto reals = std::move(value).toTensorList();
    c10::List<at::Tensor> managed;
    managed.reserve(reals.size());
    for (size_t k = 0; k < reals.size(); ++k) managed.push_back(call.give_back(reals.get(k)));
    value = std::move(managed);
  }
}

}  // namespace

void run_managed(const ManagedOp& op, torch::jit::Stack* stack) {
  const OpPlan& plan = *op.plan;
  refuse_mixed_devices(op, torch::jit::last(*stack, plan.args.size()));
  if (plan.foreach && run_in_sublists(op, stack)) return;
  OperatorCall call(plan.op.schema().name());
  Arguments arguments(call, plan, *stack);
  arguments.collect();
  NodeId node = call.choose();
  const NodeBackend& backend = call.runtime().backend(node);
  if (!backend.host && !has_kernel(plan, backend)) [[unlikely]] {
    TORCH_WARN_ONCE("innkeeper: ", plan.op.schema().name(), " and perhaps others have no kernel for ",
                    backend.device, "; they run on the host");
    node = call.runtime().engine().host();
  }
  call.begin(node);
  arguments.replace();
  // By the real tensors' own keys, so that views with a conjugate bit and the like take the way they take
  // there.
  try {
    std::optional<DefaultGeneratorTurn> turn;
    if (draws(op, torch::jit::last(*stack, plan.args.size()))) [[unlikely]]
      turn.emplace(current_stream(), call.runtime().backend(node).device);
    plan.op.callBoxed(stack);
  } catch (const c10::OutOfMemoryError& error) {
    TORCH_CHECK_WITH(OutOfMemoryError, false, plan.op.schema().name(), ": ", error.what_without_backtrace(),
                     "; its operands take ", to_string(call.operand_bytes()));
  }
  for (size_t i = stack->size() - plan.nrets; i < stack->size(); ++i) give_back(call, (*stack)[i]);
  call.finish();
}

}  // namespace innkeeper::torch_layer
