// The boxed function's twin for hot operators: the same steps (fallback.cc) without boxing, made from an
// operator's at::_ops declaration by one template. Saves about a third of what a small operator costs above
// plain PyTorch.
//
// Fit for operators whose arguments are tensors (Tensor, Tensor?) and plain values, whose written arguments
// are the `Tensor&` ones, and whose results are tensors. Not for lists, generators, devices, hidden writes,
// or operators that take CPU tensors beside managed ones.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "torch/operator/device_check.h"
#include "torch/operator/fallback.h"
#include "torch/operator/operator_call.h"
#include "torch/operator/soft_placement.h"

namespace innkeeper::torch_layer {

template <class Op, class Signature = typename Op::schema>
struct TypedKernel;

template <class Op, class Return, class... Args>
struct TypedKernel<Op, Return(Args...)> {
  static Return run(Args... args) {
    DeviceCheck check;
    (look_at(check, args), ...);
    check.refuse_mixed(Op::name);
    OperatorCall call(Op::name);
    (collect(call, args), ...);
    if (call.too_large()) [[unlikely]]
      return boxed(args...);
    call.begin(call.choose());
    size_t next = 0;
    try {
      if constexpr (std::is_same_v<Return, at::Tensor&>) {
        {
          // Braces: lent from left to right, as they were collected.
          std::tuple<Lent<Args>...> lent{lend<Args>(call, next, args)...};
          std::apply([](auto&... real) -> void { Op::call(static_cast<Args>(real)...); }, lent);
        }
        call.finish();
        return written(args...);
      } else {
        Return result = compute(call, next, args...);
        call.finish();
        return result;
      }
    } catch (const c10::OutOfMemoryError& error) {
      const std::string why = std::string(error.what_without_backtrace()) + "; its operands take " +
                              to_string(call.operand_bytes());
      const bool writes = std::is_same_v<Return, at::Tensor&>;
      if (writes || instead_of(call.runtime(), call.node()) == call.node()) {
        TORCH_CHECK_WITH(OutOfMemoryError, false, Op::name, ": ", why);
      }
      call.give_up();
      warn_of_host(Op::name, why);
      const OnHost on_host;
      return boxed(args...);
    } catch (const c10::AcceleratorError& error) {
      call.throw_device_failure(error);
    }
  }

 private:
  // The rare cases, by the boxed function.
  static Return boxed(Args... args) {
    static const ManagedOp& op = *new ManagedOp(
        read_signature(c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name)));
    torch::jit::Stack stack;
    torch::jit::push(stack, args...);
    run_managed(op, &stack);
    if constexpr (std::is_same_v<Return, at::Tensor&>) {
      return written(args...);
    } else {
      return c10::impl::PopResult<Return>::call(stack);
    }
  }

  template <class T>
  static constexpr bool kTensor = std::is_same_v<std::remove_cvref_t<T>, at::Tensor>;
  template <class T>
  static constexpr bool kMaybeTensor = std::is_same_v<std::remove_cvref_t<T>, std::optional<at::Tensor>>;
  template <class T>
  static constexpr bool kWritten = std::is_same_v<T, at::Tensor&>;
  // What a kernel is lent for an argument: tensors that it may put others in place of by value, the rest as
  // it is.
  template <class T>
  using Lent = std::conditional_t<kWritten<T> || kMaybeTensor<T>, std::remove_cvref_t<T>, T>;

  template <class T>
  static void look_at(DeviceCheck& check, const T& argument) {
    if constexpr (kTensor<T>) check.look_at(argument, false);
    if constexpr (kMaybeTensor<T>) {
      if (argument.has_value()) check.look_at(*argument, false);
    }
  }
  static void look_at(DeviceCheck& check, at::Tensor& argument) { check.look_at(argument, true); }

  template <class T>
  static void collect(OperatorCall& call, const T& argument) {
    if constexpr (kTensor<T>) {
      if (is_managed(argument)) call.borrow(argument, false);
    }
    if constexpr (kMaybeTensor<T>) {
      if (argument.has_value() && is_managed(*argument)) call.borrow(*argument, false);
    }
  }
  static void collect(OperatorCall& call, at::Tensor& argument) {
    if (is_managed(argument)) call.borrow(argument, true);
  }

  template <class T>
  static Lent<T> lend(OperatorCall& call, size_t& next, T argument) {
    if constexpr (kTensor<T>) {
      return is_managed(argument) ? call.real(next++) : argument;
    } else if constexpr (kMaybeTensor<T>) {
      if (argument.has_value() && is_managed(*argument)) return call.real(next++);
      return argument;
    } else {
      return static_cast<T>(argument);
    }
  }

  static Return compute(OperatorCall& call, size_t& next, Args... args) {
    std::tuple<Lent<Args>...> lent{lend<Args>(call, next, args)...};
    Return real =
        std::apply([](auto&... each) -> Return { return Op::call(static_cast<Args>(each)...); }, lent);
    return give_back(call, std::move(real));
  }

  static at::Tensor give_back(OperatorCall& call, at::Tensor real) { return call.give_back(std::move(real)); }
  template <class... T>
  static std::tuple<T...> give_back(OperatorCall& call, std::tuple<T...> reals) {
    return std::apply([&](auto&... real) { return std::tuple<T...>{call.give_back(std::move(real))...}; },
                      reals);
  }

  // The argument that an in-place or out= operator returns.
  template <class First, class... Rest>
  static at::Tensor& written(First&& first, Rest&&... rest) {
    if constexpr (kWritten<First>) {
      return first;
    } else {
      return written(std::forward<Rest>(rest)...);
    }
  }
};

}  // namespace innkeeper::torch_layer
