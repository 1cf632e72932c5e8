// The operators that small models call most often, without boxing (typed_kernel.h). The list comes from
// counting the operators in training steps of a GPT, a ResNet and an MLP; other operators use the boxed
// function.
#include <ATen/Operators.h>
#include "torch/kernels/custom_kernels.h"
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
  IK_TYPED("sub.Scalar", sub_Scalar);
  IK_TYPED("mul_.Scalar", mul__Scalar);
  IK_TYPED("div.Scalar", div_Scalar);
  IK_TYPED("div_.Scalar", div__Scalar);
  IK_TYPED("add_.Scalar", add__Scalar);
  IK_TYPED("rsub.Scalar", rsub_Scalar);
  IK_TYPED("cos", cos);
  IK_TYPED("sin", sin);
  IK_TYPED("log", log);
  IK_TYPED("abs", abs);
  IK_TYPED("reciprocal", reciprocal);
  IK_TYPED("sqrt_", sqrt_);
  IK_TYPED("pow.Tensor_Tensor", pow_Tensor_Tensor);
  IK_TYPED("maximum", maximum);
  IK_TYPED("minimum", minimum);
  IK_TYPED("clamp", clamp);
  IK_TYPED("clamp_min", clamp_min);
  IK_TYPED("eq.Tensor", eq_Tensor);
  IK_TYPED("eq.Scalar", eq_Scalar);
  IK_TYPED("ne.Scalar", ne_Scalar);
  IK_TYPED("lt.Scalar", lt_Scalar);
  IK_TYPED("lt.Tensor", lt_Tensor);
  IK_TYPED("gt.Scalar", gt_Scalar);
  IK_TYPED("gt.Tensor", gt_Tensor);
  IK_TYPED("ge.Scalar", ge_Scalar);
  IK_TYPED("le.Scalar", le_Scalar);
  IK_TYPED("logical_not", logical_not);
  IK_TYPED("bitwise_and.Tensor", bitwise_and_Tensor);
  IK_TYPED("where.self", where_self);
  IK_TYPED("masked_fill.Scalar", masked_fill_Scalar);
  IK_TYPED("masked_fill_.Scalar", masked_fill__Scalar);
  IK_TYPED("addcmul", addcmul);
  IK_TYPED("addcdiv", addcdiv);
  IK_TYPED("lerp.Scalar", lerp_Scalar);
  IK_TYPED("silu_backward", silu_backward);
  IK_TYPED("_safe_softmax", _safe_softmax);
  IK_TYPED("native_layer_norm_backward", native_layer_norm_backward);
  IK_TYPED("embedding", embedding);
  IK_TYPED("gather", gather);
  IK_TYPED("index_select", index_select);
  IK_TYPED("cumsum", cumsum);
  IK_TYPED("cat", cat);
  IK_TYPED("stack", stack);
  IK_TYPED("slice_backward", slice_backward);
  IK_TYPED("select_backward", select_backward);
  IK_TYPED("tril", tril);
  IK_TYPED("triu", triu);
  IK_TYPED("constant_pad_nd", constant_pad_nd);
  IK_TYPED("max", max);
  IK_TYPED("amax", amax);
  IK_TYPED("argmax", argmax);
  IK_TYPED("max.dim", max_dim);
  IK_TYPED("convolution_backward", convolution_backward);
  IK_TYPED("max_pool2d_with_indices", max_pool2d_with_indices);
  IK_TYPED("max_pool2d_with_indices_backward", max_pool2d_with_indices_backward);
  IK_TYPED("native_batch_norm_backward", native_batch_norm_backward);
  IK_TYPED("_scaled_dot_product_flash_attention_for_cpu", _scaled_dot_product_flash_attention_for_cpu);
  IK_TYPED("_scaled_dot_product_flash_attention_for_cpu_backward",
           _scaled_dot_product_flash_attention_for_cpu_backward);
}

#undef IK_TYPED

}  // namespace innkeeper::torch_layer
