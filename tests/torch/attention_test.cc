// The managed device's choice of an attention kernel: the CPU's choice for the same shapes.
#include <ATen/ATen.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "innkeeper/torch/runtime.h"
#include "torch/memory/handle.h"
#include "torch/start/load.h"

namespace innkeeper::torch_layer {
namespace {

struct Case {
  const char* name;
  std::vector<int64_t> query, key;
  at::ScalarType dtype = at::kFloat;
  double dropout = 0;
  bool causal = false;
  bool with_mask = false;
  bool grad = false;
};

class Attention : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    load();
    if (!started()) configure("sim:1x4MiB,host:64MiB");
  }
};

int64_t choice(const Case& c, at::Device device, bool transposed) {
  const auto options = at::TensorOptions(device).dtype(c.dtype);
  const auto make = [&](at::IntArrayRef sizes) {
    at::Tensor x = at::empty(sizes, options).requires_grad_(c.grad);
    return transposed ? x.transpose(1, 2).contiguous().transpose(1, 2) : x;
  };
  std::optional<at::Tensor> mask;
  if (c.with_mask) mask = at::empty({c.query[2], c.key[2]}, options);
  return at::_fused_sdp_choice(make(c.query), make(c.key), make(c.key), mask, c.dropout, c.causal);
}

TEST_F(Attention, ChoosesWhatTheCpuChooses) {
  const std::vector<Case> cases = {
      {"plain", {2, 4, 16, 8}, {2, 4, 16, 8}},
      {"causal", {2, 4, 16, 8}, {2, 4, 16, 8}, at::kFloat, 0, true},
      {"gradient", {2, 4, 16, 8}, {2, 4, 16, 8}, at::kFloat, 0, true, false, true},
      {"mask", {2, 4, 16, 8}, {2, 4, 16, 8}, at::kFloat, 0, false, true},
      {"dropout", {2, 4, 16, 8}, {2, 4, 16, 8}, at::kFloat, 0.1},
      {"other length", {2, 4, 16, 8}, {2, 4, 24, 8}},
      {"double", {2, 4, 16, 8}, {2, 4, 16, 8}, at::kDouble},
      {"bfloat16", {2, 4, 16, 8}, {2, 4, 16, 8}, at::kBFloat16},
      {"three dimensions", {4, 16, 8}, {4, 16, 8}},
      {"empty", {2, 4, 0, 8}, {2, 4, 0, 8}},
  };
  bool flash = false;
  bool math = false;
  for (const Case& c : cases) {
    for (const bool transposed : {false, true}) {
      const int64_t expected = choice(c, at::kCPU, transposed);
      EXPECT_EQ(choice(c, managed_device(), transposed), expected)
          << c.name << (transposed ? ", transposed" : "");
      flash = flash || expected == static_cast<int64_t>(sdp::SDPBackend::flash_attention);
      math = math || expected == static_cast<int64_t>(sdp::SDPBackend::math);
    }
  }
  EXPECT_TRUE(flash && math) << "the cases tell the kernels apart";
}

TEST_F(Attention, ChoosingTouchesNoMemory) {
  const at::Tensor x =
      at::empty({64, 16, 4096, 64}, at::TensorOptions(managed_device()));  // 1 GiB, never written.
  EXPECT_EQ(at::_fused_sdp_choice(x, x, x), static_cast<int64_t>(sdp::SDPBackend::flash_attention));
  EXPECT_TRUE(torch_layer::where(x).empty());
}

}  // namespace
}  // namespace innkeeper::torch_layer
