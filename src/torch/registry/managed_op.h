// An operator as the managed device runs it.
#pragma once

#include "torch/registry/signature.h"

namespace innkeeper::torch_layer {

// What the managed device knows of an operator beyond its schema.
struct ManagedOp {
  explicit ManagedOp(const Signature* its_signature);
  const Signature* signature;
  // CUDA takes operands of this operator from the CPU, whatever their shape: indices, lengths, an optimizer's
  // step.
  bool takes_cpu_operands;
  // Draws from PyTorch's default generator, because its schema has no Generator.
  bool draws_from_default_generator;
};

}  // namespace innkeeper::torch_layer
