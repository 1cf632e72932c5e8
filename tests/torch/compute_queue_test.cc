// A program that works on a stream of its own: managed operators stay in order with it, on the compute queue.
// The simulator hides a kernel's writes until a thread waits for its queue, so a missing order shows as
// poison.
#include "torch/accelerator/compute_queue.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <vector>

#include "innkeeper/torch/runtime.h"
#include "torch/memory/handle.h"
#include "torch/start/load.h"

namespace innkeeper::torch_layer {
namespace {

constexpr int64_t kCount = 4096;
const c10::Device kGpu(c10::kHPU, 0);

class ComputeQueue : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("INNKEEPER_SIM", "late", 1);
    load();
    configure("sim:1x4MiB,host:64MiB");
  }
  void SetUp() override {
    (void)at::zeros({1}, managed_device());  // Starts the simulator.
    guard_.emplace(c10::kHPU);
    side_ = guard_->getStreamFromGlobalPool(kGpu, false);
    before_ = guard_->exchangeStream(*side_);
  }
  void TearDown() override { guard_->exchangeStream(*before_); }

  std::optional<c10::impl::VirtualGuardImpl> guard_;
  std::optional<c10::Stream> side_;
  std::optional<c10::Stream> before_;
};

at::TensorOptions floats(c10::Device device) { return at::TensorOptions(device).dtype(at::kFloat); }

TEST_F(ComputeQueue, AManagedCopyComesAfterTheProgramsKernels) {
  const at::Tensor real = at::empty({kCount}, floats(kGpu));
  real.fill_(7);
  const at::Tensor managed = at::empty({kCount}, floats(managed_device()));
  managed.copy_(real);
  EXPECT_EQ(at::sum(managed).item<float>(), 7.0F * kCount);
}

TEST_F(ComputeQueue, TheProgramsKernelsComeAfterManagedOnes) {
  const at::Tensor managed = at::full({kCount}, 2, floats(managed_device()));
  const at::Tensor real = at::zeros({kCount}, floats(kGpu));
  managed.add_(1);
  real.copy_(managed);
  real.mul_(2);
  EXPECT_EQ(real.cpu().sum().item<float>(), 6.0F * kCount);
}

TEST_F(ComputeQueue, OperatorsLeaveTheProgramsStreamAsItWas) {
  const at::Tensor managed = at::full({kCount}, 2, floats(managed_device()));
  managed.mul_(3);
  EXPECT_EQ(guard_->getStream(kGpu), *side_);
}

// The engine's copies wait for the compute queue, not for the program's stream.
TEST_F(ComputeQueue, EvictionWaitsForTheLastKernel) {
  const at::Tensor managed = at::empty({kCount}, floats(managed_device()));
  managed.fill_(5);
  evict(managed);
  EXPECT_EQ(managed.min().item<float>(), 5.0F);
  EXPECT_EQ(managed.max().item<float>(), 5.0F);
}

// Memory of a fetched block belongs to the compute queue: after its release it is reused in that queue's
// order.
TEST_F(ComputeQueue, MoreThanTheNodeHoldsKeepsItsValues) {
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < 8; ++i) tensors.push_back(at::full({1 << 18}, i, floats(managed_device())));
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(tensors[static_cast<size_t>(i)].min().item<float>(), static_cast<float>(i));
    EXPECT_EQ(tensors[static_cast<size_t>(i)].max().item<float>(), static_cast<float>(i));
  }
}

TEST_F(ComputeQueue, AScopePutsTheStreamBack) {
  {
    const OnComputeQueue scope(kGpu);
    EXPECT_EQ(guard_->getStream(kGpu), guard_->getDefaultStream(kGpu));
  }
  EXPECT_EQ(guard_->getStream(kGpu), *side_);
}

}  // namespace
}  // namespace innkeeper::torch_layer
