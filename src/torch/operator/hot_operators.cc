// The operators that small models call most, without boxing (typed_kernel.h). The list comes from counting
// the operators of a GPT's, a ResNet's and an MLP's training steps; what is not on it goes through the boxed
// function.
#include <ATen/Operators.h>
#include "torch/kernels/own_kernels.h"
#include "torch/operator/typed_kernel.h"

namespace innkeeper::torch_layer {

#define IK_TYPED(name, op) m.impl(name, &TypedKernel<at::_ops::op>::run)

void register_hot_operators() {
  torch::Library& m = kernels_for("aten", kManagedKey);
  IK_TYPED("add.Tensor", add_Tensor);
  IK_TYPED("add_.Tensor", add__Tensor);
  IK_TYPED("sub.Tensor", sub_Tensor);
  IK_TYPED("sub_.Tensor", sub__Tensor);
  IK_TYPED("mul.Tensor", mul_Tensor);
  IK_TYPED("mul_.Tensor", mul__Tensor);
  IK_TYPED("div.Tensor", div_Tensor);
  IK_TYPED("div_.Tensor", div__Tensor);
  IK_TYPED("addcmul_", addcmul_);
  IK_TYPED("addcdiv_", addcdiv_);
  IK_TYPED("lerp_.Scalar", lerp__Scalar);
  IK_TYPED("neg", neg);
  IK_TYPED("sqrt", sqrt);
  IK_TYPED("rsqrt", rsqrt);
  IK_TYPED("exp", exp);
  IK_TYPED("tanh", tanh);
  IK_TYPED("tanh_backward", tanh_backward);
  IK_TYPED("sigmoid", sigmoid);
  IK_TYPED("sigmoid_backward", sigmoid_backward);
  IK_TYPED("pow.Tensor_Scalar", pow_Tensor_Scalar);
  IK_TYPED("relu", relu);
  IK_TYPED("relu_", relu_);
  IK_TYPED("threshold_backward", threshold_backward);
  IK_TYPED("gelu", gelu);
  IK_TYPED("gelu_backward", gelu_backward);
  IK_TYPED("silu", silu);
  IK_TYPED("mm", mm);
  IK_TYPED("bmm", bmm);
  IK_TYPED("addmm", addmm);
  IK_TYPED("sum", sum);
  IK_TYPED("sum.dim_IntList", sum_dim_IntList);
  IK_TYPED("mean", mean);
  IK_TYPED("mean.dim", mean_dim);
  IK_TYPED("_softmax", _softmax);
  IK_TYPED("_softmax_backward_data", _softmax_backward_data);
  IK_TYPED("_log_softmax", _log_softmax);
  IK_TYPED("_log_softmax_backward_data", _log_softmax_backward_data);
  IK_TYPED("nll_loss_forward", nll_loss_forward);
  IK_TYPED("nll_loss_backward", nll_loss_backward);
  IK_TYPED("native_layer_norm", native_layer_norm);
  IK_TYPED("embedding_dense_backward", embedding_dense_backward);
  IK_TYPED("fill_.Scalar", fill__Scalar);
  IK_TYPED("zero_", zero_);
}

#undef IK_TYPED

}  // namespace innkeeper::torch_layer
