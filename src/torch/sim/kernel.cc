#include "torch/sim/kernel.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include "torch/sim/current.h"
#include "torch/sim/kernel_call.h"
#include "torch/sim/sim_backend.h"

namespace innkeeper::torch_layer::sim_backend {
namespace {

using Kind = ArgPlan::Kind;

// What of a CPU tensor's keys chooses the kernel: dense, sparse, quantized, nested.
constexpr c10::DispatchKeySet kCpuKeys =
    c10::DispatchKeySet(c10::BackendComponent::CPUBit) |
    c10::DispatchKeySet({c10::DispatchKey::Dense, c10::DispatchKey::Sparse, c10::DispatchKey::SparseCsr,
                         c10::DispatchKey::Quantized, c10::DispatchKey::NestedTensor});

// Replaces a call's arguments by their faces.
class Arguments {
 public:
  Arguments(KernelCall& call, const OpPlan& plan, c10::Stack& stack)
      : call_(call), plan_(plan), stack_(stack) {}

  void convert() {
    const size_t first = stack_.size() - plan_.args.size();
    for (size_t i = 0; i < plan_.args.size(); ++i) convert(stack_[first + i], plan_.args[i], i);
  }
  c10::DispatchKeySet keys() const { return keys_; }

 private:
  at::Tensor face_of(at::Tensor tensor, const ArgPlan& arg, size_t i) {
    if (!tensor.defined()) return tensor;
    if (on_accelerator(tensor)) return call_.borrow(std::move(tensor), i, arg.written);
    if (tensor.is_cpu()) keys_ = keys_ | (tensor.key_set() & kCpuKeys);
    return tensor;
  }

  void convert(c10::IValue& value, const ArgPlan& arg, size_t i) {
    switch (arg.kind) {
      case Kind::tensor:
        if (value.isTensor()) value = face_of(std::move(value).toTensor(), arg, i);
        return;
      case Kind::tensor_list: {
        if (!value.isTensorList()) return;
        const auto tensors = std::move(value).toTensorList();
        c10::List<at::Tensor> faces;
        faces.reserve(tensors.size());
        for (const auto& tensor : tensors) faces.push_back(face_of(tensor, arg, i));
        value = std::move(faces);
        return;
      }
      case Kind::optional_tensor_list: {
        if (!value.isOptionalTensorList()) return;
        const auto tensors = std::move(value).toOptionalTensorList();
        c10::List<std::optional<at::Tensor>> faces;
        faces.reserve(tensors.size());
        for (const std::optional<at::Tensor>& tensor : tensors) {
          faces.push_back(tensor.has_value() ? std::optional(face_of(*tensor, arg, i)) : std::nullopt);
        }
        value = std::move(faces);
        return;
      }
      case Kind::device:
        if (value.isDevice() && value.toDevice().is_hpu()) {
          const c10::Device device = value.toDevice();
          if (call_.index() < 0) call_.place(device.has_index() ? device.index() : current_device());
          value = c10::Device(c10::kCPU);
        }
        return;
      default: return;
    }
  }

  KernelCall& call_;
  const OpPlan& plan_;
  c10::Stack& stack_;
  c10::DispatchKeySet keys_{c10::DispatchKey::CPU};
};

void give_back(KernelCall& call, c10::IValue& value, at::Tensor& first) {
  if (value.isTensor()) {
    value = call.give_back(std::move(value).toTensor());
    if (!first.defined()) first = value.toTensor();
  } else if (value.isTensorList()) {
    const auto faces = std::move(value).toTensorList();
    c10::List<at::Tensor> tensors;
    tensors.reserve(faces.size());
    for (const auto& face : faces) tensors.push_back(call.give_back(face));
    value = std::move(tensors);
  }
}

}  // namespace

void run_on_accelerator(const OpPlan& plan, FlopsFn flops, c10::Stack* stack) {
  KernelCall call;
  Arguments arguments(call, plan, *stack);
  arguments.convert();
  if (call.index() < 0) return plan.op.redispatchBoxed(arguments.keys(), stack);  // nothing here is ours
  call.begin(plan.host_result);
  plan.op.redispatchBoxed(arguments.keys(), stack);
  call.computed();
  at::Tensor first;
  for (size_t i = stack->size() - plan.nrets; i < stack->size(); ++i) give_back(call, (*stack)[i], first);
  call.end(flops == nullptr ? 0 : flops(call.operands(), first));
}

void fallback(const c10::OperatorHandle& op, c10::Stack* stack) {
  run_on_accelerator(*plan_of(op), nullptr, stack);
}

}  // namespace innkeeper::torch_layer::sim_backend
