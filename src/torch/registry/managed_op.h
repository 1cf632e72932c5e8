// An operator as the managed device runs it.
#pragma once

#include "torch/registry/signature.h"

namespace innkeeper::torch_layer {

// Facts of an operator for the managed device, beyond its schema.
struct ManagedOp {
  explicit ManagedOp(const Signature* its_signature);
  const Signature* signature;
  // CUDA takes operands of this operator of any shape from the CPU: indices, lengths, an optimizer's step.
  bool takes_cpu_operands;
  // Draws from PyTorch's default generator, because its schema has no Generator.
  bool draws_from_default_generator;
};

}  // namespace innkeeper::torch_layer
