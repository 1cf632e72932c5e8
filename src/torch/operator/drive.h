// The steps of one operator (docs/internals/operators.md), shared by all ways to call it: boxed, also on
// parts of lists (fallback.cc); typed (typed_kernel.h); copies (kernels/copy.cc); operators on sparse tensors
// (kernels/composed_kernels.cc).
//
// An OperatorKind, a plain class, holds the steps in which these ways differ. All types are known at compile
// time, so the compiler can inline every call of the fast path.
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
  // Returns true if it has run the operator in slices, because the operands are larger than every
  // accelerator.
  { kind.run_in_slices() } -> std::same_as<bool>;
  // The node where the operator should run.
  { kind.node(call) } -> std::same_as<NodeId>;
  // Exposes real tensors to the kernel, runs it, and turns its results into managed tensors.
  kind.compute(call);
  // Whether the host may run the operator again if its kernel finds no free space: the kernel has written
  // nothing (I9).
  { kind.is_repeatable(call) } -> std::same_as<bool>;
  // Calls the operator again with its original arguments.
  kind.repeat();
  // Releases the real tensors before an error leaves the operator: a holder of one counts as a holder outside
  // the engine (I12).
  kind.let_go();
  // The operator's result, for the caller.
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

// Base of a Kind that is never cut into slices and never run again.
struct WholeAndOnce {
  static bool run_in_slices() { return false; }
  static bool is_repeatable(const OperatorCall&) { return false; }
  static void repeat() {}
  static void let_go() {}
};

}  // namespace innkeeper::torch_layer
