#include "torch/operator/fallback.h"

#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>

#include <optional>

#include "torch/operator/meta_results.h"
#include "torch/operator/operator_call.h"
#include "torch/operator/soft_placement.h"
#include "torch/runtime/random_stream.h"

namespace innkeeper::torch_layer {
namespace {

using Kind = Parameter::Kind;

// Only where no operand has been written may an operator that failed be run again (I9). What it drew is put
// back (Drawn).
bool is_repeatable(const Signature& signature) { return signature.aten && !signature.metadata_write; }

// Takes the managed tensors out of the arguments, then puts the real ones in their place.
class Arguments {
 public:
  Arguments(OperatorCall& call, const Signature& signature, torch::jit::Stack& stack)
      : call_(call), signature_(signature), first_(stack.size() - signature.args.size()), stack_(stack) {}

  void collect() {
    for (size_t i = 0; i < signature_.args.size(); ++i) {
      const Parameter& arg = signature_.args[i];
      const c10::IValue& value = stack_[first_ + i];
      if (arg.kind == Kind::tensor) {
        if (value.isTensor() && is_managed(value.toTensor())) call_.borrow(value.toTensor(), arg.written);
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

  // As they came, for an operator that may be run again; empty for any other.
  using Given = c10::SmallVector<c10::IValue, 8>;
  Given given() const {
    if (!is_repeatable(signature_) || call_.overwrites() || call_.runtime().backend(call_.node()).host)
      return {};
    return Given(stack_.begin() + static_cast<std::ptrdiff_t>(first_), stack_.end());
  }

  void replace() {
    const NodeBackend& backend = call_.runtime().backend(call_.node());
    for (size_t i = 0; i < signature_.args.size(); ++i) {
      c10::IValue& value = stack_[first_ + i];
      switch (signature_.args[i].kind) {
        case Kind::tensor:
          if (value.isTensor()) replace_tensor(value);
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

  // The call keeps what stood there, which it had borrowed.
  void replace_tensor(c10::IValue& value) {
    if (!is_managed(value.toTensor())) return;
    call_.keep(next_, std::move(value).toTensor());
    value = call_.real(next_++);
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
  const Signature& signature_;
  const size_t first_;
  torch::jit::Stack& stack_;
  size_t next_ = 0;
};

// A simulated accelerator runs CPU kernels, and seems to have any.
bool has_kernel(const Signature& signature, const NodeBackend& backend) {
  return signature.op.hasComputedKernelForDispatchKey(backend.kind == "sim" ? c10::DispatchKey::CPU
                                                                            : backend.key);
}

// The results of an operator that writes are counted before it runs, where its operands take one part in so
// many of a budget: should they not fit, it cannot be run again elsewhere.
constexpr int64_t kCountedBefore = 4;

bool returns_too_much(const OperatorCall& call, const Signature& signature, NodeId node,
                      c10::ArrayRef<c10::IValue> arguments) {
  if (!signature.any_written || !signature.fresh_results) [[likely]]
    return false;
  const Bytes budget = call.runtime().engine().budget(node);
  if (kCountedBefore * call.operand_bytes().count() <= budget.count()) return false;
  return call.operand_bytes() + bytes_of_results(signature, arguments) > budget;
}

// The state from which an operator draws, to be put back before it is run again. What another thread drew
// from the same stream meanwhile is drawn again.
class Drawn {
 public:
  Drawn(const Signature& signature, c10::ArrayRef<c10::IValue> arguments) {
    if (!signature.draws) return;
    stream_ = current_stream().kernel_generator();
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (signature.args[i].kind != Kind::generator || arguments[i].isNone()) continue;
      const at::Generator given = arguments[i].toGenerator();
      if (given.defined())
        stream_ = given.device().type() == kManagedType ? kernel_generator_of(given) : given;
    }
    const std::lock_guard<std::mutex> lock(stream_.mutex());
    state_ = stream_.get_state();
  }
  void put_back() {
    if (!stream_.defined()) return;
    const std::lock_guard<std::mutex> lock(stream_.mutex());
    stream_.set_state(state_);
  }

 private:
  at::Generator stream_;
  at::Tensor state_;
};

NodeId where_to_run(const OperatorCall& call, const Signature& signature,
                    c10::ArrayRef<c10::IValue> arguments) {
  Runtime& runtime = call.runtime();
  const NodeId node = call.choose();
  const NodeBackend& backend = runtime.backend(node);
  if (backend.host) return node;
  const std::string& name = runtime.engine().device(node).name();
  std::string why;
  if (!has_kernel(signature, backend)) [[unlikely]] {
    why = name + " has no kernel for it";
  } else if (returns_too_much(call, signature, node, arguments)) [[unlikely]] {
    why = "its results do not fit " + name;
  } else {
    return node;
  }
  const NodeId other = instead_of(runtime, node);
  if (other != node) {
    warn_of_host(signature.op.schema().name(), why);
  } else {
    TORCH_CHECK_NOT_IMPLEMENTED(has_kernel(signature, backend), signature.op.schema().name(), ": ", why,
                                ", and soft_placement is off");
  }
  return other;
}

// Whether the kernel is going to draw from PyTorch's default generator. `arguments`: the operator's.
bool draws(const ManagedOp& op, c10::ArrayRef<c10::IValue> arguments) {
  if (!op.draws_from_default_generator) [[likely]]
    return false;
  const int8_t dropout = op.signature->dropout_arg;
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
  const Signature& signature = *op.signature;
  const size_t bottom = stack->size() - signature.args.size();
  refuse_mixed_devices(op, torch::jit::last(*stack, signature.args.size()));
  if (signature.foreach && run_in_sublists(op, stack)) return;
  OperatorCall call(signature.op.schema().name());
  Arguments arguments(call, signature, *stack);
  arguments.collect();
  if (signature.pointwise && call.too_large()) [[unlikely]] {
    if (run_in_slices(op, stack)) return;
  }
  const NodeId node = where_to_run(call, signature, torch::jit::last(*stack, signature.args.size()));
  call.begin(node);
  Arguments::Given given = arguments.given();
  std::optional<Drawn> drawn;
  if (signature.draws && !given.empty()) [[unlikely]]
    drawn.emplace(signature, given);
  arguments.replace();
  // By the real tensors' own keys, so that views with a conjugate bit and the like take the way they take
  // there.
  try {
    std::optional<DefaultGeneratorTurn> turn;
    if (draws(op, torch::jit::last(*stack, signature.args.size()))) [[unlikely]]
      turn.emplace(current_stream(), call.runtime().backend(node).device);
    signature.op.callBoxed(stack);
  } catch (const c10::OutOfMemoryError& error) {
    const std::string why = std::string(error.what_without_backtrace()) + "; its operands take " +
                            to_string(call.operand_bytes());
    if (!given.empty() && instead_of(call.runtime(), call.node()) != call.node()) {
      call.give_up();
      warn_of_host(signature.op.schema().name(), why);
      stack->resize(bottom);
      stack->insert(stack->end(), given.begin(), given.end());
      if (drawn.has_value()) drawn->put_back();
      const OnHost on_host;
      return run_managed(op, stack);
    }
    TORCH_CHECK_WITH(OutOfMemoryError, false, signature.op.schema().name(), ": ", why);
  } catch (const c10::AcceleratorError& error) {
    call.throw_device_failure(error);
  }
  for (size_t i = stack->size() - signature.nrets; i < stack->size(); ++i) give_back(call, (*stack)[i]);
  call.finish();
}

}  // namespace innkeeper::torch_layer
