// Operators on simulated accelerators return the results of CPU kernels, and account for every byte.
#include <torch/library.h>

#include <string>

#include "sim_fixture.h"
#include "torch/memory/composed.h"

namespace innkeeper::torch_layer {
namespace {

at::Tensor& kept_face() {
  static auto& kept = *new at::Tensor;
  return kept;
}

at::Tensor keep(const at::Tensor& x) {
  kept_face() = x;
  return x + 1;
}

TORCH_LIBRARY(sim_backend_test, library) {
  library.def("keep(Tensor x) -> Tensor");
  library.impl("keep", c10::DispatchKey::CPU, TORCH_FN(keep));
}

TEST_F(SimBackendTest, operators_are_the_cpu_kernels) {
  const at::Tensor a = at::randn({8, 16}), b = at::randn({16, 32});
  expect_same(at::mm(there(a), there(b)), at::mm(a, b));
  const at::Tensor image = at::randn({2, 3, 9, 9}), weight = at::randn({4, 3, 3, 3}), bias = at::randn({4});
  expect_same(at::conv2d(there(image), there(weight), there(bias)), at::conv2d(image, weight, bias));
  expect_same(at::softmax(there(a), 1), at::softmax(a, 1));
  expect_same(at::cat({there(a), there(a)}, 1), at::cat({a, a}, 1));
  const at::Tensor rows = at::tensor({3, 1}, at::kLong);
  expect_same(at::index(there(a), {there(rows)}), at::index(a, {rows}));
  expect_recount();
}

TEST_F(SimBackendTest, an_operator_is_one_kernel) {
  const at::Tensor x = there(at::randn({4, 8}));
  sim::Accelerator& device = sim_backend::accelerator(0);
  const double before = device.time(0);
  const at::Tensor y = at::layer_norm(x, {8});
  const double took = device.time(0) - before;
  EXPECT_GE(took, device.options().gpu.launch_seconds);
  EXPECT_LT(took, 2 * device.options().gpu.launch_seconds);
}

TEST_F(SimBackendTest, matrix_products_cost_arithmetic) {
  const at::Tensor x = there(at::zeros({512, 512}));
  sim::Accelerator& device = sim_backend::accelerator(0);
  const double before = device.time(0);
  const at::Tensor y = at::mm(x, x);
  const cost::GpuModel& gpu = device.options().gpu;
  const double flops = 2.0 * 512 * 512 * 512, bytes = 3.0 * 512 * 512 * 4;
  EXPECT_NEAR(device.time(0) - before,
              gpu.launch_seconds + std::max(flops / gpu.flops(cost::Precision::fp32), bytes / gpu.bytes()),
              1e-12);
}

TEST_F(SimBackendTest, attention_costs_two_products_over_the_keys) {
  const at::Tensor query = there(at::zeros({1, 1, 1024, 64})), key = there(at::zeros({1, 1, 2048, 64}));
  sim::Accelerator& device = sim_backend::accelerator(0);
  const double before = device.time(0);
  const auto result = at::_scaled_dot_product_flash_attention_for_cpu(query, key, key);
  const cost::GpuModel& gpu = device.options().gpu;
  const double flops = 2 * (2.0 * 1024 * 2048 * 64);
  EXPECT_NEAR(device.time(0) - before, gpu.launch_seconds + flops / gpu.flops(cost::Precision::fp32), 1e-12);
}

TEST_F(SimBackendTest, views_share_memory) {
  const at::Tensor expected = at::randn({6, 4});
  const at::Tensor base = there(expected);
  const int64_t used = accountant().used(0);
  at::Tensor view = base.t().slice(0, 1, 3);
  EXPECT_TRUE(view.is_alias_of(base));
  EXPECT_EQ(accountant().used(0), used);
  view.mul_(2);
  expected.t().slice(0, 1, 3).mul_(2);
  expect_same(base, expected);
  at::Tensor same = view.add_(1);
  EXPECT_TRUE(same.is_same(view));
  expected.t().slice(0, 1, 3).add_(1);
  expect_same(base, expected);
  expect_same(view.unfold(1, 2, 2).contiguous(), expected.t().slice(0, 1, 3).unfold(1, 2, 2).contiguous());
}

TEST_F(SimBackendTest, results_that_alias_an_operand_share_its_storage) {
  const at::Tensor x = there(at::randn({4, 6}));
  EXPECT_TRUE(at::_unsafe_view(x, {24}).is_alias_of(x));
  const int64_t used = accountant().used(0);
  const std::vector<at::Tensor> parts = at::unsafe_split(x + 0, 2, 1);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_TRUE(parts[0].is_alias_of(parts[2]));
  EXPECT_EQ(accountant().used(0), used + round_up(Bytes(4 * 6 * 4)).count());
  expect_same(parts[1], x.cpu().slice(1, 2, 4));
}

TEST_F(SimBackendTest, conjugate_and_negative_views) {
  const at::Tensor z = at::randn({5}, at::kComplexFloat);
  expect_same(there(z).conj() * 2, z.conj() * 2);
  expect_same(there(z).conj(), z.conj().resolve_conj());
  expect_same(at::mm(there(z).view({5, 1}).conj(), there(z).view({1, 5})),
              at::mm(z.view({5, 1}).conj(), z.view({1, 5})));
  expect_same(at::imag(there(z).conj()) + 0, at::imag(z.conj()) + 0);
}

TEST_F(SimBackendTest, out_is_resized_with_its_storage) {
  const at::Tensor x = at::randn({8, 16});
  at::Tensor out = there(at::empty({0}));
  const at::Tensor alias = out.detach();
  at::add_out(out, there(x), there(x));
  expect_same(out, x + x);
  EXPECT_TRUE(alias.is_alias_of(out));
  EXPECT_EQ(alias.storage().nbytes(), 8u * 16 * 4);
  expect_recount();
  at::Tensor small = there(at::empty({3}));
  const int64_t used = accountant().used(0);
  at::sum_out(small, there(x), {1});
  expect_same(small, x.sum(1));
  EXPECT_EQ(accountant().used(0), used);  // 3 and 8 floats take one unit each.
}

TEST_F(SimBackendTest, resize_and_set) {
  at::Tensor x = there(at::arange(6, at::kFloat));
  x.resize_({2, 40});
  EXPECT_EQ(x.storage().nbytes(), 320u);
  expect_same(x.flatten().slice(0, 0, 6), at::arange(6, at::kFloat));
  at::Tensor y = there(at::empty({0}));
  y.set_(x);
  EXPECT_TRUE(y.is_alias_of(x));
  y.set_(x.storage(), 1, {3}, {2});
  expect_same(y, at::tensor({1.f, 3.f, 5.f}));
  y.set_();
  EXPECT_EQ(y.numel(), 0);
  x.resize_({0});
  expect_recount();
}

TEST_F(SimBackendTest, lists_longer_than_a_search) {
  std::vector<at::Tensor> host, device;
  for (int64_t i = 0; i < 40; ++i) {
    host.push_back(at::randn({i + 1}));
    device.push_back(there(host.back()));
  }
  const auto sums = at::_foreach_add(device, 2.0);
  at::_foreach_mul_(device, sums);
  for (size_t i = 0; i < host.size(); ++i) {
    expect_same(sums[i], host[i] + 2.0);
    expect_same(device[i], host[i] * (host[i] + 2.0));
  }
  expect_recount();
}

TEST_F(SimBackendTest, running_statistics_are_written) {
  const at::Tensor x = at::randn({4, 3, 5});
  const at::Tensor mean = at::zeros({3}), variance = at::ones({3});
  const at::Tensor there_mean = there(mean), there_variance = there(variance);
  const auto expected = at::native_batch_norm(x, {}, {}, mean, variance, true, 0.1, 1e-5);
  const auto actual = at::native_batch_norm(there(x), {}, {}, there_mean, there_variance, true, 0.1, 1e-5);
  expect_same(std::get<0>(actual), std::get<0>(expected));
  expect_same(there_mean, mean);
  expect_same(there_variance, variance);
}

TEST_F(SimBackendTest, an_exception_in_a_kernel_loses_nothing) {
  const at::Tensor host = at::randn({8, 16});
  const at::Tensor x = there(host);
  EXPECT_THROW(at::mm(x, x), c10::Error);
  at::Tensor out = there(at::empty({0}));
  EXPECT_THROW(at::index_select_out(out, x, 0, there(at::tensor({0, 99}, at::kLong))), c10::Error);
  expect_recount();
  expect_same(x + 1, host + 1);
  at::index_select_out(out, x, 0, there(at::tensor({0, 7}, at::kLong)));
  expect_same(out, at::index_select(host, 0, at::tensor({0, 7}, at::kLong)));
}

TEST_F(SimBackendTest, host_results_wait) {
  const at::Tensor x = at::tensor({0.f, 3.f, 0.f, 4.f});
  EXPECT_EQ((there(x) * 2).sum().item<float>(), 14.f);
  EXPECT_TRUE(at::equal(there(x) + 1, there(x + 1)));
  expect_same(at::nonzero(there(x) + 0), at::nonzero(x));
}

TEST_F(SimBackendTest, copies_convert_broadcast_and_cross) {
  const at::Tensor x = at::randn({4, 6});
  expect_same(there(x).to(at::kDouble), x.to(at::kDouble));
  at::Tensor wide = there(at::zeros({3, 4, 6}));
  wide.copy_(x);  // A copy from the host, broadcast.
  expect_same(wide, x.expand({3, 4, 6}));
  wide.transpose(0, 2).copy_(there(x, 1).t().unsqueeze(2));  // A copy from the other accelerator, strided.
  expect_same(wide, x.expand({3, 4, 6}));
  at::Tensor half = at::zeros({6, 4}, at::kHalf);
  half.t().copy_(there(x));  // A copy to the host, converted and strided.
  expect_same(half, x.t().to(at::kHalf));
  expect_same(there(there(x), 1), x);
  EXPECT_GT(sim_backend::accelerator(0).copied(sim::Accelerator::Direction::peer).count(), 0);
  const at::Tensor resized = there(at::empty({0}));
  at::_copy_from_and_resize(x, resized);
  expect_same(resized, x);
}

TEST_F(SimBackendTest, operands_of_two_accelerators_are_refused) {
  const at::Tensor x = there(at::ones({2})), y = there(at::ones({2}), 1);
  try {
    x + y;
    FAIL() << "accepted";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("hpu:0 and hpu:1"), std::string::npos) << error.what();
  }
}

TEST_F(SimBackendTest, factories_without_operands) {
  const c10::Device second(c10::kHPU, 1);
  const at::Tensor zero = at::_efficientzerotensor({3}, at::TensorOptions().device(second));
  EXPECT_EQ(accountant().used(1), 0);
  expect_same(there(at::ones({3}), 1) + zero, at::ones({3}));
  const at::Tensor triangle = at::tril_indices(3, 3, 0, at::TensorOptions(at::kLong).device(second));
  EXPECT_EQ(triangle.device(), second);
  expect_same(triangle, at::tril_indices(3, 3));
  EXPECT_EQ(at::tril_indices(3, 3, 0, at::TensorOptions(at::kLong).device(c10::kHPU)).device().index(), 0);
  expect_same(at::arange(5, at::TensorOptions(at::kLong).device(second)), at::arange(5));
}

TEST_F(SimBackendTest, what_is_made_of_parts_has_them_there) {
  const Parts sparse = parts_of(there(at::ones({2, 2})).to_sparse());
  ASSERT_EQ(sparse.size(), 2u);
  EXPECT_TRUE(sparse[0].is_hpu() && sparse[1].is_hpu());
  expect_same(sparse[1], at::ones({4}));
  const Parts quantized = parts_of(at::quantize_per_tensor(there(at::ones({2})), 0.5, 1, at::kQUInt8));
  ASSERT_EQ(quantized.size(), 1u);
  EXPECT_TRUE(quantized[0].is_hpu());
  expect_same(quantized[0], at::full({2}, 3, at::kByte));
  expect_recount();
}

TEST_F(SimBackendTest, what_pytorch_has_not_for_an_accelerator_is_refused) {
  EXPECT_THROW(there(at::ones({2, 2})).to_sparse_csr(), c10::Error);
  EXPECT_THROW(there(at::ones({2, 2})).to_mkldnn(), c10::Error);
  expect_recount();
}

// Operators of other libraries take the fallback. A tensor that such a kernel keeps keeps its memory.
TEST_F(SimBackendTest, a_kernel_that_keeps_its_operand_keeps_the_memory) {
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("sim_backend_test::keep", "")
                      .typed<at::Tensor(const at::Tensor&)>();
  {
    const at::Tensor x = there(at::full({4}, 5.f));
    EXPECT_EQ(x.storage().use_count(), 1u);
    expect_same(op.call(x), at::full({4}, 6.f));
    EXPECT_EQ(x.storage().use_count(), 2u);
  }
  sim_backend::accelerator(0).synchronize();
  EXPECT_TRUE(at::equal(kept_face(), at::full({4}, 5.f)));
  kept_face().reset();
}

TEST_F(SimBackendTest, accelerators_are_replaced_only_when_empty) {
  const at::Tensor x = there(at::ones({2}));
  EXPECT_THROW(sim_backend::install({}, nullptr, {}), c10::Error);
  EXPECT_EQ(sim_backend::count(), 2);
  EXPECT_THROW(sim_backend::accelerator(2), c10::Error);
}

}  // namespace
}  // namespace innkeeper::torch_layer
