// RMS norm is one kernel if GPUs compute, and composed if CPU kernels do. PyTorch has the fused kernel for
// CUDA alone, and composes it, derivative included, for each other device.
#include <ATen/Operators.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "torch/kernels/custom_kernels.h"
#include "torch/kernels/host_kernels.h"
#include "torch/operator/typed_kernel.h"

namespace innkeeper::torch_layer {
namespace {

// Runs the computing device's kernel for autograd: the derivative of the fused kernel, or the composition.
void as_behind(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto behind = runs_cuda_kernels() ? c10::DispatchKey::AutogradCUDA : c10::DispatchKey::AutogradCPU;
  op.getComputedKernelForDispatchKey(behind).callBoxed(op, keys, stack);
}

}  // namespace

void register_rms_norm() {
  kernels_for("aten", kManagedKey).impl("_fused_rms_norm", &TypedKernel<at::_ops::_fused_rms_norm>::run);
  kernels_for("aten", kManagedAutogradKey)
      .impl("_fused_rms_norm", torch::CppFunction::makeFromBoxedFunction<&as_behind>());
}

}  // namespace innkeeper::torch_layer
