#include "torch/sim/kernel.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <span>

#include "torch/sim/current.h"
#include "torch/sim/kernel_call.h"
#include "torch/sim/sim_backend.h"

namespace innkeeper::torch_layer::sim_backend {
namespace {

using Kind = Parameter::Kind;

// The keys of a CPU tensor that choose the kernel: dense, sparse, quantized, nested.
constexpr c10::DispatchKeySet kCpuKeys =
    c10::DispatchKeySet(c10::BackendComponent::CPUBit) |
    c10::DispatchKeySet({c10::DispatchKey::Dense, c10::DispatchKey::Sparse, c10::DispatchKey::SparseCsr,
                         c10::DispatchKey::Quantized, c10::DispatchKey::NestedTensor});

constexpr c10::DispatchKeySet kShapeKeys(c10::DispatchKey::Meta);

[[noreturn]] void refuse_shape_from_data(const Signature& signature) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, signature.op.schema().name(),
                              " needs data, which INNKEEPER_SIM has off: its result's shape depends on it");
}

bool is_mask(const std::optional<at::Tensor>& index) {
  return index.has_value() && index->defined() &&
         (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte);
}

// Whether the operator is an indexing x[...]: its result's shape depends on data if an index is a mask.
bool takes_indices(const Signature& signature) {
  return std::any_of(signature.args.begin(), signature.args.end(),
                     [](const Parameter& arg) { return arg.kind == Kind::optional_tensor_list; });
}

// Without data most operators compute shapes. Operators that return only numbers to the host read the bytes,
// which are zeros. Operators whose result's shape depends on data cannot run.
Faces faces_for(const Signature& signature) {
  if (has_data()) return Faces::bytes;
  if (signature.shape_from_data && !takes_indices(signature)) refuse_shape_from_data(signature);
  if (signature.numbers_alone) return Faces::bytes;
  TORCH_CHECK_NOT_IMPLEMENTED(signature.op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta),
                              signature.op.schema().name(),
                              " has no kernel that computes shapes alone, and INNKEEPER_SIM has data off");
  return Faces::shapes;
}

// Replaces a call's arguments by their faces.
class Arguments {
 public:
  Arguments(KernelCall& call, Faces faces, const Signature& signature, c10::Stack& stack)
      : call_(call), faces_(faces), signature_(signature), stack_(stack) {}

  void convert() {
    const size_t first = stack_.size() - signature_.args.size();
    for (size_t i = 0; i < signature_.args.size(); ++i) convert(stack_[first + i], signature_.args[i], i);
  }
  c10::DispatchKeySet keys() const { return faces_ == Faces::bytes ? keys_ : kShapeKeys; }

 private:
  at::Tensor face_of(at::Tensor tensor, const Parameter& arg, size_t i) {
    if (!tensor.defined()) return tensor;
    if (on_accelerator(tensor)) return call_.borrow(std::move(tensor), i, arg.written);
    if (!tensor.is_cpu()) return tensor;
    keys_ = keys_ | (tensor.key_set() & kCpuKeys);
    // A number may stand beside any device's tensors; indices and similar operands must be on the device of
    // the others.
    if (faces_ == Faces::bytes || tensor.dim() == 0) return tensor;
    return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kMeta));
  }

  void convert(c10::IValue& value, const Parameter& arg, size_t i) {
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
          if (faces_ == Faces::shapes && signature_.shape_from_data && is_mask(tensor)) {
            refuse_shape_from_data(signature_);
          }
          faces.push_back(tensor.has_value() ? std::optional(face_of(*tensor, arg, i)) : std::nullopt);
        }
        value = std::move(faces);
        return;
      }
      case Kind::device:
        if (value.isDevice() && value.toDevice().is_hpu()) {
          const c10::Device device = value.toDevice();
          if (call_.index() < 0) call_.place(device.has_index() ? device.index() : current_device());
          value = c10::Device(faces_ == Faces::bytes ? c10::kCPU : c10::kMeta);
        }
        return;
      case Kind::generator:
        // Shape kernels draw no numbers, and some meta kernels refuse a generator.
        if (faces_ == Faces::shapes) value = c10::IValue();
        return;
      default: return;
    }
  }

  KernelCall& call_;
  const Faces faces_;
  const Signature& signature_;
  c10::Stack& stack_;
  c10::DispatchKeySet keys_{c10::DispatchKey::CPU};
};

void give_back(KernelCall& call, c10::IValue& value) {
  if (value.isTensor()) {
    value = call.give_back(std::move(value).toTensor());
  } else if (value.isTensorList()) {
    const auto faces = std::move(value).toTensorList();
    c10::List<at::Tensor> tensors;
    tensors.reserve(faces.size());
    for (const auto& face : faces) tensors.push_back(call.give_back(face));
    value = std::move(tensors);
  }
}

cost::KernelCost kernel_of(const WorkRule* rule, const KernelCall& call,
                           c10::ArrayRef<c10::IValue> returned) {
  if (rule == nullptr) return {};
  c10::SmallVector<const at::Tensor*, 8> operands, results;
  for (const Operand& operand : call.operands()) operands.push_back(&operand.tensor);
  for (const c10::IValue& value : returned) {
    if (value.isTensor() && value.toTensor().defined()) results.push_back(&value.toTensor());
  }
  return work_of(rule, operands, results);
}

}  // namespace

void run_on_accelerator(const Signature& signature, const WorkRule* rule, c10::Stack* stack) {
  const Faces faces = faces_for(signature);
  KernelCall call(faces);
  Arguments arguments(call, faces, signature, *stack);
  arguments.convert();
  // No operand is an accelerator's.
  if (call.index() < 0) return signature.op.redispatchBoxed(arguments.keys(), stack);
  call.begin(signature.host_result);
  signature.op.redispatchBoxed(arguments.keys(), stack);
  call.computed();
  const std::span<c10::IValue> returned(stack->data() + stack->size() - signature.nrets, signature.nrets);
  for (c10::IValue& value : returned) give_back(call, value);
  call.end(kernel_of(rule, call, c10::ArrayRef<c10::IValue>(returned.data(), returned.size())),
           signature.op.schema().name());
}

void fallback(const c10::OperatorHandle& op, c10::Stack* stack) {
  run_on_accelerator(*signature_of(op), remembered_work_rule(op.schema().name()), stack);
}

}  // namespace innkeeper::torch_layer::sim_backend
