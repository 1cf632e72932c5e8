// The steps of an operator's life (docs/internals/operators.md), written once for every way in which one is
// called: boxed and in parts of lists (fallback.cc), typed (typed_kernel.h), copies (kernels/copy.cc),
// operators on sparse tensors (kernels/composed_kernels.cc).
//
// What differs is an OperatorKind, a plain class. Everything is known at compile time: the fast path has no
// call that could not be inlined.
#pragma once

#include <concepts>
#include <string_view>

#include "torch/operator/operator_call.h"
#include "torch/operator/soft_placement.h"

namespace innkeeper::torch_layer {

template <class Kind>
concept OperatorKind = requires(Kind& kind, OperatorCall& call) {
  // The operator's name, for messages.
  { kind.name() } -> std::convertible_to<std::string_view>;
  // Refuses mixed devices, and gives the call its managed operands.
  kind.collect(call);
  // True: it has run the operator in slices, because its operands are larger than every accelerator.
  { kind.run_in_slices() } -> std::same_as<bool>;
  // The node where the operator should run.
  { kind.node(call) } -> std::same_as<NodeId>;
  // Exposes real tensors to the kernel, runs it, and turns what it made into managed tensors.
  kind.compute(call);
  // Whether the host may run the operator again if its kernel finds no free space: nothing was written (I9).
  { kind.is_repeatable(call) } -> std::same_as<bool>;
  // Calls the operator again as it was called.
  kind.repeat();
  // Gives up the real tensors, before an error leaves the operator.
  kind.let_go();
  // What the caller gets.
  kind.result();
};

template <OperatorKind Kind>
decltype(auto) drive(Kind& kind) {
  OperatorCall call(kind.name());
  kind.collect(call);
  if (call.too_large()) [[unlikely]] {
    if (kind.run_in_slices()) return kind.result();
  }
  call.begin(kind.node(call));
  try {
    kind.compute(call);
  } catch (const c10::OutOfMemoryError& error) {
    kind.let_go();
    const std::string why = call.leave_to_host(error, kind.is_repeatable(call));
    try {
      const OnNode on_host(call.runtime().engine().host());
      kind.repeat();
    } catch (const c10::OutOfMemoryError& again) {
      call.throw_of_host(why, again);
    }
    warn_of_host(kind.name(), why);
    return kind.result();
  } catch (const c10::AcceleratorError& error) {
    kind.let_go();
    call.throw_device_failure(error);
  } catch (...) {
    kind.let_go();
    throw;
  }
  call.finish();
  return kind.result();
}

// For a Kind that no slices are cut of, and that is not run again.
struct WholeAndOnce {
  static bool run_in_slices() { return false; }
  static bool is_repeatable(const OperatorCall&) { return false; }
  static void repeat() {}
  static void let_go() {}
};

}  // namespace innkeeper::torch_layer
