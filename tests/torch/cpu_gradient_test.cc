// CPU tensors that require a gradient, used together with managed ones (operator/cpu_gradient.cc): the hooks
// that stay at a tensor.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

#include "innkeeper/torch/runtime.h"
#include "torch/memory/handle.h"
#include "torch/operator/mixed_move.h"
#include "torch/start/load.h"

namespace innkeeper::torch_layer {
namespace {

class CpuGradient : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    load();
    if (!started()) configure("sim:1x4MiB,host:64MiB");
  }
  CpuGradient() { set_moves_cpu_tensors(true); }
  ~CpuGradient() override { set_moves_cpu_tensors(moved_); }

 private:
  const bool moved_ = moves_cpu_tensors();
};

TEST_F(CpuGradient, ItsNodeHasOneHookHoweverOftenItIsUsed) {
  const at::Tensor w = at::ones({3}).requires_grad_();
  const at::Tensor x = at::full({3}, 2.0).to(at::Device(kManagedType));
  at::Tensor sum = at::zeros({}, x.options());
  for (int step = 0; step < 5; ++step) sum = sum + (w * x).sum() + (x + w).sum();
  EXPECT_EQ(torch::autograd::impl::grad_accumulator(w)->pre_hooks().size(),
            1U);  // The hook lives as long as the graph.
  sum.backward();
  EXPECT_TRUE(w.grad().is_cpu());
  EXPECT_TRUE(at::equal(w.grad(), at::full({3}, 15.0)));
}

}  // namespace
}  // namespace innkeeper::torch_layer
