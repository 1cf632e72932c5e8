// What an operator's schema says, in the form that a boxed kernel wants: which arguments hold tensors, which
// are written, and the few facts that a schema hides. Computed once for an operator; a call walks no schema.
//
// Used by both boxed kernels: the managed device's and the simulated accelerator's.
//
// Thread safety: read_signature may be called from any thread. Signatures are immutable and never destroyed.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>

#include <cstdint>

#include "innkeeper/export.h"
#include "torch/registry/repeated_bits.h"

namespace innkeeper::torch_layer {

struct Parameter {
  enum class Kind : uint8_t {
    other,                 // numbers, strings, sizes: passed on as they are
    tensor,                // Tensor or Tensor?: the value may be None or an undefined tensor
    tensor_list,           // Tensor[] (or Tensor[]?: the value may be None)
    optional_tensor_list,  // Tensor?[]
    generator,             // Generator?: the value may be None
    device,                // Device or Device?: the value may be None
    scalar_list,           // Scalar[]: in a foreach operator one number for each element of the lists
    storage,
    stream,
  };
  Kind kind = Kind::other;
  bool written = false;  // by the schema, or on the list of hidden writes
};

struct Signature {
  explicit Signature(const c10::OperatorHandle& handle) : op(handle) {}

  c10::OperatorHandle op;
  c10::SmallVector<Parameter, 8> args;
  uint8_t nrets = 0;
  bool aten = false;
  bool any_list = false;     // some argument is a list of tensors
  bool any_written = false;  // some argument is written
  bool tensor_args = false;  // some argument is, or is a list of, tensors
  // Draws random numbers, and has no Generator argument to draw them from.
  bool random_without_generator = false;
  bool draws = false;  // draws random numbers, from whatever
  // Works element by element over its lists of tensors, so that it may run in sub-lists. A
  // tensor argument named "scalars" (_foreach_addcmul.Tensor and the like) is one number for each element,
  // too.
  bool foreach = false;
  int8_t scalars_arg = -1;  // index of that argument
  // Each element of the result depends on those at its place alone, by arithmetic (not: copies, fills).
  bool pointwise = false;
  bool is_view = false;  // the result shares the operand's storage by the schema
  // Changes sizes or strides of the tensor object it is given (t_, squeeze_, set_).
  bool metadata_write = false;
  // The host waits for the result: it is a number, or a tensor whose shape depends on data.
  bool host_result = false;
  bool shape_from_data = false;  // a result's shape depends on what the operands hold
  bool numbers_alone = false;    // there are results, and none is a tensor
  bool fresh_results = false;    // some result is no written argument returned again
  // Reads its operands and makes new tensors of them, the same bits each time, by a kernel that costs little
  // more than to touch them once.
  bool pure = false;
  mutable RepeatedBits repeated = {};  // of a pure one: learned while it runs
  int8_t dropout_arg = -1;             // index of `dropout_p`: where it is 0, nothing is drawn
};

// Never null. Every call makes a signature again: callers keep what they got.
IK_EXPORT const Signature* read_signature(const c10::OperatorHandle& op);

// The signature of `op` from a table shared by all callers; slower than keeping it. For backend fallbacks,
// which are told the operator only when it is called.
IK_EXPORT const Signature* signature_of(const c10::OperatorHandle& op);

}  // namespace innkeeper::torch_layer
