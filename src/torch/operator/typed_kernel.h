// The unboxed counterpart of fallback.cc for hot operators: the same steps (drive.h), which one template
// makes from an operator's at::_ops declaration.
//
// For operators of PyTorch's own. Their arguments are tensors (Tensor, Tensor?), lists of tensors that are
// only read, and plain values; they write only their `Tensor&` arguments; their results are tensors. Not for
// generators, devices, hidden writes, or operators that take CPU tensors beside managed ones.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "torch/operator/device_check.h"
#include "torch/operator/drive.h"
#include "torch/operator/fallback.h"
#include "torch/operator/mixed_move.h"

namespace innkeeper::torch_layer {

// Keys of tensors that a backend's kernel takes directly: those of backends and those that are excluded while
// a kernel runs. For a tensor with another key (a conjugate or negative bit) the dispatcher chooses the
// kernel.
inline constexpr c10::DispatchKeySet kBackendKeys =
    c10::DispatchKeySet(c10::DispatchKeySet::RAW, c10::full_backend_mask) |
    c10::DispatchKeySet(c10::DispatchKey::Dense);
inline constexpr c10::DispatchKeySet kOrdinaryKeys =
    kBackendKeys | c10::DispatchKeySet(c10::DispatchKey::AutogradFunctionality) | kAboveKernels;

template <class Op, class Signature = typename Op::schema>
class TypedKernel;

template <class Op, class Return, class... Args>
class TypedKernel<Op, Return(Args...)> {
 public:
  static Return run(Args... args) {
    TypedKernel kernel(args...);
    try {
      return drive(kernel);
    } catch (const MixedOperands&) {
      kernel.repeat();
      return kernel.result();
    }
  }

  static std::string_view name() { return Op::name; }

  void collect(OperatorCall& call) {
    each([&](auto& argument) { collect(call, argument); });
    if (foreign_ || call.mixed_indices()) [[unlikely]]
      refuse_mixed();
  }

  bool run_in_slices() {
    repeat();
    return true;
  }

  NodeId node(OperatorCall& call) const {
    const NodeId node = call.choose();
    return call.runtime().backend(node).host ? node : where_to_run(call, *boxed_op().signature, node, {});
  }

  void compute(OperatorCall& call) {
    const auto kept = call.keeps_calls() && boxed_op().signature->pure ? keep(call) : nullptr;
    next_ = 0;
    std::apply(
        [&](auto&... argument) {
          // Braces evaluate from left to right.
          std::tuple<Lent<Args>...> lent{lend<Args>(call, argument)...};
          std::apply([&](auto&... real) { run_kernel(call, real...); }, lent);
        },
        args_);
    if (kept != nullptr) [[unlikely]]
      came_of(call, kept);
  }

  static bool is_repeatable(const OperatorCall&) { return !kWrites; }
  static void let_go() {}

  // Runs the rare cases through the boxed function.
  void repeat() {
    torch::jit::Stack stack;
    each([&](auto& argument) { push(stack, argument); });
    run_managed(boxed_op(), &stack);
    if constexpr (!kWrites) result_ = c10::impl::PopResult<Return>::call(stack);
  }

  Return result() {
    if constexpr (kWrites) {
      return std::apply([](auto&... argument) -> at::Tensor& { return written(argument...); }, args_);
    } else {
      return std::move(result_);
    }
  }

 private:
  explicit TypedKernel(Args&... args) : args_(args...) {}

  static constexpr bool kWrites = std::is_same_v<Return, at::Tensor&>;
  template <class T>
  static constexpr bool kMaybeTensor = std::is_same_v<std::remove_cvref_t<T>, std::optional<at::Tensor>>;
  template <class T>
  static constexpr bool kList = std::is_same_v<std::remove_cvref_t<T>, at::ITensorListRef> ||
                                std::is_same_v<std::remove_cvref_t<T>, at::TensorList>;
  template <class T>
  static constexpr bool kWritten = std::is_same_v<T, at::Tensor&>;
  using Reals = c10::SmallVector<at::Tensor, 6>;
  // Storage for an argument while the kernel runs: a reference to a tensor that the call owns, or a value.
  template <class T>
  using Lent =
      std::conditional_t<kMaybeTensor<T>, std::optional<at::Tensor>, std::conditional_t<kList<T>, Reals, T>>;

  static const ManagedOp& boxed_op() {
    static const ManagedOp& op = *new ManagedOp(
        read_signature(c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name)));
    return op;
  }

  template <class Visit>
  void each(Visit visit) {
    std::apply([&](auto&... argument) { (visit(argument), ...); }, args_);
  }

  // Visits every tensor in an argument; `written`: the kernel writes it.
  template <class Visit, class T>
  static void each_tensor(T& argument, Visit visit) {
    if constexpr (std::is_same_v<T, at::Tensor>) {
      visit(argument, true);
    } else if constexpr (std::is_same_v<T, const at::Tensor>) {
      visit(argument, false);
    } else if constexpr (kMaybeTensor<T>) {
      if (argument.has_value()) visit(*argument, false);
    } else if constexpr (kList<T>) {
      for (const at::Tensor& tensor : argument) visit(tensor, false);
    }
  }

  template <class T>
  void collect(OperatorCall& call, T& argument) {
    each_tensor(argument, [&](const at::Tensor& tensor, bool is_written) {
      if (is_managed(tensor)) [[likely]] {
        call.borrow(tensor, is_written);
      } else {
        foreign_ = foreign_ || tensor.defined();
      }
    });
  }

  [[gnu::noinline]] std::shared_ptr<const RecordedOperator> keep(OperatorCall& call) {
    torch::jit::Stack arguments;
    each([&](auto& argument) { push(arguments, argument); });
    return call.keep(boxed_op(), arguments);
  }

  [[gnu::noinline]] void came_of(OperatorCall& call,
                                 const std::shared_ptr<const RecordedOperator>& kept) const {
    if constexpr (std::is_same_v<std::remove_cvref_t<Return>, at::Tensor>) {
      if constexpr (!kWrites) call.came_of(kept, result_);
    } else {
      std::apply([&](const auto&... result) { call.came_of(kept, {result...}); }, result_);
    }
  }

  [[gnu::noinline]] void refuse_mixed() {
    DeviceCheck check;
    each([&](auto& argument) {
      each_tensor(argument, [&](const at::Tensor& x, bool is_written) { check.look_at(x, is_written); });
    });
    check.refuse_mixed(Op::name);
  }

  template <class Tensor>
  Tensor& real(OperatorCall& call, Tensor& argument) {
    Tensor& lent = is_managed(argument) ? call.real(next_++) : argument;
    if (lent.defined()) keys_ = keys_ | lent.key_set();
    return lent;
  }

  template <class T, class Argument>
  Lent<T> lend(OperatorCall& call, Argument& argument) {
    if constexpr (kMaybeTensor<T>) {
      if (!argument.has_value()) return argument;
      return real(call, *argument);
    } else if constexpr (kList<T>) {
      Reals reals;
      for (const at::Tensor& tensor : argument) reals.push_back(real(call, tensor));
      return reals;
    } else if constexpr (std::is_same_v<std::remove_const_t<Argument>, at::Tensor>) {
      return real(call, argument);
    } else {
      return static_cast<T>(argument);
    }
  }

  template <class T, class Kept>
  static decltype(auto) as_argument(Kept& lent) {
    if constexpr (kList<T>) {
      return std::remove_cvref_t<T>(at::TensorList(lent));
    } else {
      return static_cast<T>(lent);
    }
  }

  // Skips the dispatcher's search for the backend if it could find no other kernel.
  template <class... Kept>
  void run_kernel(OperatorCall& call, Kept&... lent) {
    const bool ordinary = (keys_ | kOrdinaryKeys) == kOrdinaryKeys;
    const auto kernel = [&]() -> Return {
      return ordinary ? Op::redispatch(keys_ & kBackendKeys, as_argument<Args>(lent)...)
                      : Op::call(as_argument<Args>(lent)...);
    };
    if constexpr (kWrites) {
      kernel();
    } else {
      result_ = kernel();
      give_back(call, result_);
    }
  }

  static void give_back(OperatorCall& call, at::Tensor& result) {
    result = call.give_back(std::move(result), OperatorCall::Keeper::caller);
  }
  template <class... T>
  static void give_back(OperatorCall& call, std::tuple<T...>& results) {
    std::apply([&](auto&... each) { (give_back(call, each), ...); }, results);
  }

  template <class T>
  static void push(torch::jit::Stack& stack, T& argument) {
    if constexpr (kList<T>) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : argument) list.push_back(tensor);
      stack.emplace_back(std::move(list));
    } else {
      torch::jit::push(stack, argument);
    }
  }

  // The argument that an in-place or out= operator returns.
  template <class First, class... Rest>
  static at::Tensor& written(First& first, Rest&... rest) {
    if constexpr (std::is_same_v<First, at::Tensor>) {
      return first;
    } else {
      return written(rest...);
    }
  }

  const std::tuple<Args&...> args_;
  std::conditional_t<kWrites, std::monostate, std::remove_reference_t<Return>> result_;
  size_t next_ = 0;  // Next operand; operands come in the order in which collect() took them.
  c10::DispatchKeySet keys_;
  bool foreign_ = false;  // Some operand is a tensor of another device.
};

}  // namespace innkeeper::torch_layer
