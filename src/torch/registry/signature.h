// The facts of an operator's schema that a boxed kernel needs: the arguments that hold tensors, those that
// are written, and the few facts that a schema hides. Computed once for an operator, so that a call need not
// walk the schema.
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
    other,                 // Numbers, strings, sizes: passed on unchanged.
    tensor,                // Tensor or Tensor?: the value may be None or an undefined tensor.
    tensor_list,           // Tensor[] (or Tensor[]?: the value may be None).
    optional_tensor_list,  // Tensor?[]
    generator,             // Generator?: the value may be None.
    device,                // Device or Device?: the value may be None.
    scalar_list,           // Scalar[]: in a foreach operator one number for each element of the lists.
    storage,
    stream,
  };
  Kind kind = Kind::other;
  bool written = false;  // Written by the schema, or listed as a hidden write.
};

struct Signature {
  explicit Signature(const c10::OperatorHandle& handle) : op(handle) {}

  c10::OperatorHandle op;
  c10::SmallVector<Parameter, 8> args;
  uint8_t nrets = 0;
  bool aten = false;
  bool any_list = false;     // Some argument is a list of tensors.
  bool any_written = false;  // Some argument is written.
  bool tensor_args = false;  // Some argument is, or is a list of, tensors.
  // Draws random numbers, and has no Generator argument to draw them from.
  bool random_without_generator = false;
  bool draws = false;  // Draws random numbers from any generator.
  // Works element by element over its lists of tensors, so that it may run in sub-lists. A tensor argument
  // named "scalars" (_foreach_addcmul.Tensor and similar ones) also holds one number for each element.
  bool foreach = false;
  int8_t scalars_arg = -1;  // Index of the argument "scalars"; -1: none.
  // Computes each element of the result only from the operands' elements at its position, by arithmetic (so
  // no copies or fills).
  bool pointwise = false;
  bool is_view = false;  // By the schema, the result shares the operand's storage.
  // Changes sizes or strides of the tensor object of its operand (t_, squeeze_, set_).
  bool metadata_write = false;
  // The host waits for the result: it is a number, or a tensor whose shape depends on data.
  bool host_result = false;
  bool shape_from_data = false;  // A result's shape depends on the operands' data.
  bool numbers_alone = false;    // There are results, and none is a tensor.
  bool fresh_results = false;    // Some result is not a written argument.
  // Reads its operands and makes new tensors from them, with the same bits each time. Its kernel costs little
  // more than one pass over the bytes.
  bool pure = false;
  mutable RepeatedBits repeated = {};  // Of a pure operator: learned while it runs.
  int8_t dropout_arg = -1;             // Index of `dropout_p`, -1: none; if that is 0, nothing is drawn.
};

// Never null. Every call makes a new signature, so callers keep the result.
IK_EXPORT const Signature* read_signature(const c10::OperatorHandle& op);

// The signature of `op` from a table shared by all callers, which is slower than to keep it. For backend
// fallbacks, which learn the operator only from the call.
IK_EXPORT const Signature* signature_of(const c10::OperatorHandle& op);

}  // namespace innkeeper::torch_layer
