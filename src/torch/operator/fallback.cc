#include "torch/operator/fallback.h"

#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>

#include <optional>

#include "torch/errors.h"
#include "torch/memory/device_index.h"
#include "torch/operator/drive.h"
#include "torch/operator/meta_results.h"
#include "torch/operator/mixed_devices.h"
#include "torch/operator/mixed_move.h"
#include "torch/operator/slices.h"
#include "torch/operator/sublists.h"
#include "torch/random/random_stream.h"

namespace innkeeper::torch_layer {
namespace {

using Kind = Parameter::Kind;

// A simulated accelerator's own dispatch key has a fallback and so seems to have every kernel; kernel_key
// does not.
bool has_kernel(const Signature& signature, const NodeBackend& backend) {
  return signature.op.hasComputedKernelForDispatchKey(backend.kernel_key);
}

// If the operands of an operator that writes take more than 1/kCountedBefore of the budget, its results are
// counted before it runs. If the kernel ran and the results did not fit, no other node could run the operator
// again.
constexpr int64_t kCountedBefore = 4;

bool returns_too_much(OperatorCall& call, const Signature& signature, NodeId node,
                      c10::ArrayRef<c10::IValue> arguments) {
  if (!signature.any_written || !signature.fresh_results) [[likely]]
    return false;
  const Bytes budget = call.runtime().engine().budget(node);
  if (kCountedBefore * call.operand_bytes().count() <= budget.count()) return false;
  call.count_blocks_once();
  return call.operand_bytes() + bytes_of_results(signature, arguments) > budget;
}

// The state of the random stream from which an operator draws, to be restored before a second run. Numbers
// that another thread drew from the same stream in between are drawn twice.
class Drawn {
 public:
  Drawn(const Signature& signature, c10::ArrayRef<c10::IValue> arguments, c10::DeviceIndex index) {
    if (!signature.draws) return;
    stream_ = current_stream(index).kernel_generator();
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

// Whether the kernel is going to draw from PyTorch's default generator. `arguments`: the operator's.
bool draws(const ManagedOp& op, c10::ArrayRef<c10::IValue> arguments) {
  if (!op.draws_from_default_generator) [[likely]]
    return false;
  const int8_t dropout = op.signature->dropout_arg;
  return dropout < 0 || arguments[static_cast<size_t>(dropout)].toDouble() != 0;
}

// A call on a stack; the results replace the arguments.
class BoxedCall {
 public:
  BoxedCall(const ManagedOp& op, torch::jit::Stack& stack)
      : op_(op), signature_(*op.signature), first_(stack.size() - signature_.args.size()), stack_(stack) {}

  const std::string& name() const { return signature_.op.schema().name(); }

  void collect(OperatorCall& call) {
    for (size_t i = 0; i < signature_.args.size(); ++i) {
      const Parameter& arg = signature_.args[i];
      const c10::IValue& value = stack_[first_ + i];
      if (arg.kind == Kind::tensor) {
        if (!value.isTensor()) continue;
        const at::Tensor& tensor = value.toTensor();
        if (is_managed(tensor)) {
          if (arg.written && signature_.op.schema().arguments()[i].is_out())
            made_.push_back(call.operand_count());
          call.borrow(tensor, arg.written);
        } else {
          foreign_ = foreign_ || tensor.defined();
        }
      } else if (arg.kind == Kind::tensor_list) {
        if (!value.isTensorList()) continue;
        for (const c10::IValue& element : value.toListRef()) take(call, element.toTensor(), arg.written);
      } else if (arg.kind == Kind::optional_tensor_list) {
        if (value.isNone()) continue;
        for (const c10::IValue& element : value.toListRef()) {
          if (element.isTensor()) take(call, element.toTensor(), arg.written);
        }
      } else if (arg.kind == Kind::device) {
        take_index(call, value);
      }
    }
    if (foreign_ || call.mixed_indices()) [[unlikely]]
      refuse_mixed_devices(op_, arguments());
  }

  bool run_in_slices() const { return signature_.pointwise && torch_layer::run_in_slices(op_, &stack_); }

  NodeId node(OperatorCall& call) const {
    const NodeId node = call.choose();
    const NodeBackend& backend = call.runtime().backend(node);
    if (!backend.host) return where_to_run(call, signature_, node, arguments());
    TORCH_CHECK_NOT_IMPLEMENTED(call.too_small() == kNoNode || has_kernel(signature_, backend), name(), ": ",
                                call.why_too_small(), ", and the host has no kernel for it");
    return node;
  }

  void compute(OperatorCall& call) {
    remember(call);
    const auto kept = signature_.pure && call.keeps_calls() ? call.keep(op_, arguments()) : nullptr;
    next_ = 0;
    for (size_t i = 0; i < signature_.args.size(); ++i)
      lend(call, stack_[first_ + i], signature_.args[i].kind);
    // The dispatcher chooses by the real tensors' own keys, so that views with a conjugate or similar bit
    // take the usual code path of the node's device.
    std::optional<DefaultGeneratorTurn> turn;
    if (draws(op_, arguments())) [[unlikely]]
      turn.emplace(current_stream(call.index_or_current()), call.runtime().backend(call.node()).device);
    call_kernel();
    turn.reset();
    for (size_t i = first_; i < stack_.size(); ++i) give_back(call, stack_[i]);
    if (kept != nullptr) call.came_of(kept, results());
  }

  bool is_repeatable(const OperatorCall&) const { return !given_.empty(); }

  // Releases the real tensors: a holder of one at the end of the call counts as a holder outside the engine
  // (I12).
  void let_go() { stack_.resize(first_); }

  void repeat() {
    stack_.insert(stack_.end(), given_.begin(), given_.end());
    if (drawn_.has_value()) drawn_->put_back();
    run_managed(op_, &stack_);
  }

  void result() const {}

 private:
  void call_kernel() {
    if (signature_.aten) [[likely]]
      return signature_.op.callBoxed(&stack_);
    try {
      signature_.op.callBoxed(&stack_);
    } catch (...) {
      throw_out_of_memory_of_other_language();
      throw;
    }
  }

  c10::ArrayRef<c10::IValue> arguments() const { return torch::jit::last(stack_, signature_.args.size()); }

  // Results of an operator that returns only tensors.
  c10::SmallVector<at::Tensor, 3> results() const {
    c10::SmallVector<at::Tensor, 3> all;
    for (size_t i = first_; i < stack_.size(); ++i)
      all.push_back(stack_[i].isTensor() ? stack_[i].toTensor() : at::Tensor());
    return all;
  }

  // Owns an element of a list: the list owns it otherwise, and the stack releases the list.
  void take(OperatorCall& call, const at::Tensor& tensor, bool written) {
    if (is_managed(tensor)) {
      call.operand(tensor, written);
    } else {
      foreign_ = foreign_ || tensor.defined();
    }
  }

  // Keeps the original arguments of an operator that the host may run again. The host may do so only if the
  // kernel has written no operand (I9). Operands given as `out` do not count; they may have to grow beyond
  // the node's free space. If an operator of PyTorch's own draws random numbers, this also keeps the stream's
  // state.
  void remember(const OperatorCall& call) {
    if (signature_.metadata_write || call.runtime().backend(call.node()).host || call.overwrites(made_))
      return;
    given_.assign(stack_.begin() + static_cast<std::ptrdiff_t>(first_), stack_.end());
    if (signature_.draws) [[unlikely]]
      drawn_.emplace(signature_, given_, call.index_or_current());
  }

  // An operator without operands makes its result on the device that its device argument names.
  static void take_index(OperatorCall& call, const c10::IValue& value) {
    if (call.index() >= 0 || !value.isDevice() || value.toDevice().type() != kManagedType) return;
    call.take_index(index_of(value.toDevice()));
  }

  void lend(OperatorCall& call, c10::IValue& value, Kind kind) {
    switch (kind) {
      case Kind::tensor:
        if (value.isTensor()) lend_tensor(call, value);
        break;
      case Kind::tensor_list:
        if (value.isTensorList()) value = real_list<at::Tensor>(call, value);
        break;
      case Kind::optional_tensor_list:
        if (!value.isNone()) value = real_list<std::optional<at::Tensor>>(call, value);
        break;
      case Kind::generator: lend_generator(call, value); break;
      case Kind::device:
        if (value.isDevice() && value.toDevice().type() == kManagedType)
          value = call.runtime().backend(call.node()).device;
        break;
      default: break;
    }
  }

  // The call owns the managed tensor from here on, because the real tensor replaces it on the stack.
  void lend_tensor(OperatorCall& call, c10::IValue& value) {
    if (!is_managed(value.toTensor())) return;
    call.keep(next_, std::move(value).toTensor());
    value = call.real(next_++);
  }

  // Real tensors of a list. Operands come in the order in which collect() took them.
  template <class Element>
  c10::List<Element> real_list(OperatorCall& call, const c10::IValue& managed) {
    const c10::ArrayRef<c10::IValue> elements = managed.toListRef();
    c10::List<Element> reals;
    reals.reserve(elements.size());
    for (const c10::IValue& element : elements) {
      if (!element.isTensor()) {
        reals.push_back(Element());
      } else {
        reals.push_back(is_managed(element.toTensor()) ? call.real(next_++) : element.toTensor());
      }
    }
    return reals;
  }

  // Gives the stream itself to an operator with a Generator argument.
  static void lend_generator(const OperatorCall& call, c10::IValue& value) {
    at::Generator stream = current_stream(call.index_or_current()).kernel_generator();
    if (!value.isNone()) {
      const at::Generator given = value.toGenerator();
      if (!given.defined() || given.device().type() != kManagedType) return;
      stream = kernel_generator_of(given);
    }
    value = generator_on(call.runtime().backend(call.node()).device, stream);
  }

  static void give_back(OperatorCall& call, c10::IValue& value) {
    if (value.isTensor()) {
      value = call.give_back(std::move(value).toTensor(), OperatorCall::Keeper::caller);
    } else if (value.isTensorList()) {
      const c10::List<at::Tensor> reals = std::move(value).toTensorList();
      c10::List<at::Tensor> managed;
      managed.reserve(reals.size());
      for (size_t k = 0; k < reals.size(); ++k) managed.push_back(call.give_back(reals.get(k)));
      value = std::move(managed);
    }
  }

  const ManagedOp& op_;
  const Signature& signature_;
  const size_t first_;
  torch::jit::Stack& stack_;
  size_t next_ = 0;
  bool foreign_ = false;              // Some operand is a tensor of another device.
  c10::SmallVector<size_t, 3> made_;  // Indices of the operands that are given as `out`.
  c10::SmallVector<c10::IValue, 8> given_;
  std::optional<Drawn> drawn_;
};

}  // namespace

NodeId where_to_run(OperatorCall& call, const Signature& signature, NodeId node,
                    c10::ArrayRef<c10::IValue> arguments) {
  Runtime& runtime = call.runtime();
  const NodeBackend& backend = runtime.backend(node);
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
    TORCH_CHECK_NOT_IMPLEMENTED(has_kernel(signature, runtime.backend(other)), signature.op.schema().name(),
                                ": ", why, ", nor has the host",
                                signature.aten ? "" : "; register one for the CPU, or one for all devices");
    warn_of_host(signature.op.schema().name(), why);
  } else {
    TORCH_CHECK_NOT_IMPLEMENTED(has_kernel(signature, backend), signature.op.schema().name(), ": ", why,
                                ", and soft_placement is off");
  }
  return other;
}

void run_managed(const ManagedOp& op, torch::jit::Stack* stack) {
  try {
    if (op.signature->foreach && (run_one_by_one(op, stack) || run_in_sublists(op, stack))) return;
    BoxedCall call(op, *stack);
    drive(call);
    return;
  } catch (const MixedOperands&) {
  }
  run_moved(op, stack, &run_managed);
}

}  // namespace innkeeper::torch_layer
