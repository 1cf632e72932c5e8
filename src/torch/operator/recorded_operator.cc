#include "torch/operator/recorded_operator.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/List.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/PythonDispatcherTLS.h>

#include <algorithm>
#include <limits>
#include <typeinfo>
#include <utility>

#include "torch/operator/soft_placement.h"
#include "torch/process/faults.h"

namespace innkeeper::torch_layer {
namespace {

using Kind = Parameter::Kind;

// A result that the engine may recompute. It keeps the operands of its call alive.
class HeldCall final : public RecordedCall {
 public:
  explicit HeldCall(const Origin& origin) : origin_(origin), held_(origin.call->hold()) {
    std::vector<Input> inputs = origin.call->inputs();
    if (inputs.size() == held_.size()) inputs_ = std::move(inputs);
  }

  std::span<const Input> inputs() const override { return inputs_; }
  uint32_t writes() const override { return origin_.writes; }
  NodeId node() const override { return origin_.call->node(); }
  bool in_force() const override { return origin_.call->in_force() && repeats(); }

  Status follow(Block& block) override {
    try {
      TORCH_CHECK(
          origin_.call->computes_alike(),
          "a setting of PyTorch for all of the process (oneDNN's switch, say) was changed from C++ since "
          "its operator ran; Python's setters can be used");
      const OnNode here(node());
      const torch::jit::Stack results = origin_.call->run(held_);
      const at::Tensor& result = results[origin_.result].toTensor();
      TORCH_CHECK(result.scalar_type() == origin_.dtype, "an operator that made ", origin_.dtype, " makes ",
                  result.scalar_type(), " of the same now");
      return runtime().engine().recomputer().refill(block, *block_of(result), node());
    } catch (const c10::OutOfMemoryError& error) {
      return Status(Code::out_of_memory, "recompute: " + std::string(error.what_without_backtrace()));
    } catch (const std::exception& error) {
      return Status(Code::device_failed, std::string("recompute: ") + error.what());
    }
  }

 private:
  // Whether the operator kind gave the same bits twice. Requests the trial if that is unknown.
  bool repeats() const {
    if (!runtime().tries_operators()) return true;
    RepeatedBits& bits = origin_.call->op().signature->repeated;
    const RepeatedBits::Found found = bits.of(origin_.dtype);
    if (found == RepeatedBits::Found::unknown) bits.want(origin_.dtype);
    return found == RepeatedBits::Found::same;
  }

  const Origin origin_;
  const std::vector<c10::Storage> held_;
  std::vector<Input> inputs_;  // Inputs of the call; empty if an operand has died.
};

bool flushes_denormals() {
  volatile float smallest = std::numeric_limits<float>::min();
  return smallest / 2 == 0;
}

// While it lives, this thread's host kernels work under the conditions of the recorded call.
class AsThen {
 public:
  explicit AsThen(const HostKernels& then) { then.set(); }
  ~AsThen() { before_.set(); }
  AsThen(const AsThen&) = delete;
  AsThen& operator=(const AsThen&) = delete;

 private:
  const HostKernels before_ = HostKernels::now();
};

// While it lives, no mode of PyTorch's sees the calls of this thread.
class NoModes {
  const c10::impl::ForceDispatchKeyGuard no_mode_{c10::default_included_set,
                                                  c10::default_excluded_set | kAboveKernels};
  const c10::impl::DisablePythonDispatcher no_python_;
};

// A tensor of bytes over a result's whole memory.
at::Tensor as_bytes(const at::Tensor& managed) {
  c10::Storage storage = managed.storage();
  const auto size = static_cast<int64_t>(storage.nbytes());
  auto made = c10::make_intrusive<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(kManagedKey),
                                                   caffe2::TypeMeta::Make<uint8_t>());
  made->set_sizes_contiguous(size);
  return at::Tensor(std::move(made));
}

}  // namespace

std::unique_ptr<RecordedCall> recorded_call_of(Block& block) {
  const Origin* const origin = block.attachment == nullptr ? nullptr : attachment_of(block).origin.get();
  if (origin == nullptr) return nullptr;
  return std::make_unique<HeldCall>(*origin);
}

HostKernels HostKernels::now() { return {at::get_num_threads(), flushes_denormals()}; }

void HostKernels::set() const {
  const HostKernels before = now();
  if (before.threads != threads) at::set_num_threads(threads);
  if (before.denormals_flushed != denormals_flushed) at::globalContext().setFlushDenormal(denormals_flushed);
}

RecordedOperator::RecordedOperator(const ManagedOp& op, NodeId node) : op_(op), node_(node) {}

std::shared_ptr<const RecordedOperator> RecordedOperator::of(const ManagedOp& op,
                                                             c10::ArrayRef<c10::IValue> arguments,
                                                             NodeId node) {
  const std::shared_ptr<RecordedOperator> call(new RecordedOperator(op, node));
  call->arguments_.reserve(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!call->keep(arguments[i], op.signature->args[i].kind)) return nullptr;
  }
  // An operator on integers alone may give a result of the default dtype, which the program may change later.
  const auto decides = [](const Operand& operand) {
    return c10::isFloatingType(operand.dtype.toScalarType()) ||
           c10::isComplexType(operand.dtype.toScalarType());
  };
  return std::any_of(call->operands_.begin(), call->operands_.end(), decides) ? call : nullptr;
}

bool RecordedOperator::keep(const c10::IValue& argument, Kind kind) {
  if (kind == Kind::optional_tensor_list) return false;
  if (kind == Kind::tensor_list && argument.isTensorList()) {
    const auto elements = argument.toListRef();
    arguments_.push_back({static_cast<int64_t>(elements.size()), Place::list});
    return std::all_of(elements.begin(), elements.end(),
                       [this](const c10::IValue& element) { return keep(element.toTensor()); });
  }
  if (kind != Kind::tensor || !argument.isTensor() || !argument.toTensor().defined()) {
    const bool shared = argument.isList();  // The program may change a list of numbers.
    arguments_.push_back({shared ? argument.deepcopy() : argument, Place::none});
    return true;
  }
  const at::Tensor& tensor = argument.toTensor();
  // A number that Python wrapped in a tensor has no other owner, so it needs no copy.
  if (tensor.is_cpu() && tensor.dim() == 0) {
    const bool is_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
    arguments_.push_back({is_number ? tensor : tensor.clone(), Place::none});
    return true;
  }
  arguments_.push_back({{}, Place::one});
  return keep(tensor);
}

bool RecordedOperator::keep(const at::Tensor& managed) {
  if (!is_managed(managed)) return false;
  const c10::TensorImpl& impl = *managed.unsafeGetTensorImpl();
  const bool plain = typeid(impl) == typeid(c10::TensorImpl) && !impl.is_conj() && !impl.is_neg() &&
                     !impl._is_zerotensor() && !impl.is_python_dispatch();
  if (!plain || !owns_block(*impl.unsafe_storage().unsafeGetStorageImpl())) return false;
  Block* const block = block_of(managed);
  if (block->size() == Bytes(0)) return false;
  const auto storage =
      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(impl.unsafe_storage().unsafeGetStorageImpl());
  const c10::IntArrayRef sizes = impl.sizes(), strides = impl.strides();
  operands_.push_back({c10::weak_intrusive_ptr<c10::StorageImpl>(storage),
                       block,
                       block->writes(),
                       impl.dtype(),
                       {sizes.begin(), sizes.end()},
                       {strides.begin(), strides.end()},
                       impl.storage_offset(),
                       impl.is_wrapped_number()});
  return true;
}

std::vector<c10::Storage> RecordedOperator::hold() const {
  std::vector<c10::Storage> held;
  held.reserve(operands_.size());
  for (const Operand& operand : operands_) {
    // Taking a storage that only Python owns needs Python's lock, and a thread that has this lock may wait
    // for a lock that the caller holds. So such an operand ends the search. (The weak pointer keeps the
    // target's memory valid.)
    if (operand.storage._unsafe_get_target()->pyobj_slot()->load_pyobj() != nullptr) break;
    auto storage = operand.storage.lock();
    if (!storage || !owns_block(*storage) || block_of(*storage) != operand.block) break;
    held.emplace_back(std::move(storage));
  }
  return held;
}

std::vector<RecordedCall::Input> RecordedOperator::inputs() const {
  std::vector<RecordedCall::Input> all;
  all.reserve(operands_.size());
  for (const Operand& operand : operands_) all.push_back({operand.block, operand.writes});
  return all;
}

at::Tensor RecordedOperator::tensor_over(const Operand& operand, const c10::Storage& storage) {
  auto made = c10::make_intrusive<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(kManagedKey),
                                                   operand.dtype);
  made->set_sizes_and_strides(operand.sizes, operand.strides, operand.offset);
  if (operand.is_number) made->set_wrapped_number(true);
  return at::Tensor(std::move(made));
}

std::optional<bool> RecordedOperator::gives_again(const std::vector<at::Tensor>& results) const try {
  const std::vector<c10::Storage> held = hold();
  if (held.size() != operands_.size() || !in_force()) return std::nullopt;
  bool same = !faults::injected(faults::Fault::other_bits);
  runtime().engine().recomputer().run_untracked(node_, [&] {
    const OnNode here(node_);
    const torch::jit::Stack again = run(held);
    const NoModes no_modes;
    for (size_t i = 0; i < results.size(); ++i)
      same =
          same && (!is_managed(results[i]) || at::equal(as_bytes(results[i]), as_bytes(again[i].toTensor())));
  });
  return same;
} catch (const std::exception&) {  // Out of memory. The program's next operator reports other failures.
  return std::nullopt;
}

torch::jit::Stack RecordedOperator::run(const std::vector<c10::Storage>& held) const {
  torch::jit::Stack stack;
  stack.reserve(arguments_.size());
  size_t next = 0;
  const auto take = [&] {
    const size_t index = next++;
    return tensor_over(operands_[index], held[index]);
  };
  for (const Argument& argument : arguments_) {
    if (argument.tensors == Place::one) {
      stack.emplace_back(take());
    } else if (argument.tensors == Place::list) {
      c10::List<at::Tensor> list;
      for (int64_t left = argument.value.toInt(); left > 0; --left) list.push_back(take());
      stack.emplace_back(std::move(list));
    } else {
      stack.push_back(argument.value);
    }
  }
  const AsThen as_then(host_);
  const NoModes no_modes;
  run_managed(op_, &stack);
  return stack;
}

}  // namespace innkeeper::torch_layer
