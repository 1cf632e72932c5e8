// Operator signatures, and the operators that are registered one by one.
#include "torch/registry/signature.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "torch/registry/register_ops.h"

namespace innkeeper::torch_layer {
namespace {

using Kind = Parameter::Kind;

const Signature& signature(const char* name, const char* overload = "") {
  return *signature_of(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
}

TEST(Signature, kinds_of_arguments) {
  const Signature& add = signature("aten::add", "out");
  ASSERT_EQ(add.args.size(), 4u);
  EXPECT_EQ(add.args[0].kind, Kind::tensor);
  EXPECT_EQ(add.args[2].kind, Kind::other);
  EXPECT_FALSE(add.args[0].written);
  EXPECT_TRUE(add.args[3].written);
  EXPECT_TRUE(add.any_written);
  EXPECT_EQ(add.nrets, 1);
  EXPECT_EQ(signature("aten::index", "Tensor").args[1].kind, Kind::optional_tensor_list);
  EXPECT_EQ(signature("aten::bernoulli").args[1].kind, Kind::generator);
  EXPECT_EQ(signature("aten::set_", "source_Storage").args[1].kind, Kind::storage);
  EXPECT_EQ(signature("aten::_foreach_add", "ScalarList").args[1].kind, Kind::scalar_list);
  EXPECT_EQ(signature("aten::_to_copy").args[3].kind, Kind::device);
  EXPECT_EQ(signature("aten::record_stream").args[1].kind, Kind::stream);
}

TEST(Signature, hidden_writes) {
  const Signature& batch_norm = signature("aten::native_batch_norm");
  EXPECT_FALSE(batch_norm.args[0].written);
  EXPECT_TRUE(batch_norm.args[3].written);
  EXPECT_TRUE(batch_norm.args[4].written);
  EXPECT_FALSE(signature("aten::native_batch_norm_backward").any_written);
}

TEST(Signature, lists) {
  const Signature& adam = signature("aten::_fused_adamw_");
  EXPECT_TRUE(adam.foreach);
  EXPECT_TRUE(adam.any_list);
  EXPECT_TRUE(adam.args[0].written);
  EXPECT_EQ(adam.nrets, 0);
  EXPECT_EQ(signature("aten::_foreach_addcmul_", "Tensor").scalars_arg, 3);
  EXPECT_EQ(signature("aten::_foreach_addcmul_", "Scalar").scalars_arg, -1);
  EXPECT_TRUE(signature("aten::_amp_foreach_non_finite_check_and_unscale_").foreach);
  EXPECT_FALSE(signature("aten::cat").foreach);
}

TEST(Signature, facts_that_are_not_in_the_arguments) {
  EXPECT_TRUE(signature("aten::native_dropout").random_without_generator);
  EXPECT_FALSE(signature("aten::bernoulli").random_without_generator);
  EXPECT_FALSE(signature("aten::mm").random_without_generator);
  EXPECT_TRUE(signature("aten::view").is_view);
  EXPECT_FALSE(signature("aten::add_", "Tensor").is_view);
  EXPECT_TRUE(signature("aten::t_").metadata_write);
  EXPECT_TRUE(signature("aten::nonzero").host_result);
  EXPECT_TRUE(signature("aten::equal").host_result);
  EXPECT_FALSE(signature("aten::mm").host_result);
}

TEST(RegisterOps, composites_are_kept_whole_and_gradients_stay) {
  const auto ops = ops_to_register(c10::DispatchKey::PrivateUse2);  // A key without registered kernels.
  const auto has = [&](const char* name, const char* overload = "") {
    return std::any_of(ops.begin(), ops.end(), [&](const c10::OperatorHandle& op) {
      return op.operator_name() == c10::OperatorName(name, overload);
    });
  };
  EXPECT_TRUE(has("aten::cumsum"));
  EXPECT_TRUE(has("aten::norm", "Scalar"));
  EXPECT_TRUE(has("aten::native_batch_norm"));
  // The device's own kernels exist since the library was loaded; an operator with a kernel is skipped.
  EXPECT_TRUE(ops_to_register(c10::DispatchKey::PrivateUse1).empty());
  for (const auto& [name, overload] :
       {std::pair("aten::mm", ""), std::pair("aten::add", "Tensor"), std::pair("aten::_softmax", ""),
        std::pair("aten::native_layer_norm", "")}) {
    const auto op = c10::Dispatcher::singleton().findSchema({name, overload});
    ASSERT_TRUE(op.has_value()) << name;
    EXPECT_TRUE(op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) << name;
  }
  EXPECT_TRUE(has("aten::_foreach_add_", "List"));
  EXPECT_FALSE(has("aten::linear"));        // It is CompositeImplicitAutograd.
  EXPECT_TRUE(has("aten::silu_backward"));  // It is composite too, but not where there is a kernel.
  EXPECT_FALSE(has("aten::view"));          // a view
  EXPECT_FALSE(has("aten::squeeze_"));      // It changes the tensor object.
  EXPECT_FALSE(has("aten::zeros"));         // no operand
  EXPECT_FALSE(has("aten::zeros_like"));    // a factory
  EXPECT_FALSE(has("aten::clone"));
  EXPECT_GT(ops.size(), 1500u);
}

}  // namespace
}  // namespace innkeeper::torch_layer
