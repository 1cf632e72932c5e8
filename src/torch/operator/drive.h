// The steps of an operator's life (docs/internals/operators.md), written once for every way in which one is
// called: boxed and in parts of lists (fallback.cc), typed (typed_kernel.h), copies (kernels/copy.cc),
// operators on sparse tensors (kernels/composed_kernels.cc).
//
// What differs is a `Kind`, a plain class with
//     name()               the operator's, for messages
//     collect(call)        refuses mixed devices, and gives the call its managed operands
//     run_in_slices()      has run it in another way, since its operands are larger than every accelerator
//     node(call)           where it should run
//     compute(call)        lends the kernel real tensors, and gives back what it made
//     is_repeatable(call)  whether the host may run it again if its kernel finds no room: it has written
//                          nothing (I9)
//     repeat()             calls it again as it was called
//     result()             what the caller gets
// Everything is known at compile time: the fast path has no call that could not be inlined.
#pragma once

#include "torch/operator/operator_call.h"
#include "torch/operator/soft_placement.h"

namespace innkeeper::torch_layer {

template <class Kind>
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
