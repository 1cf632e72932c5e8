// Two simulated accelerators as hpu:0 and hpu:1, with an accountant that counts and can refuse or evict.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "torch/sim/sim_backend.h"

namespace innkeeper::torch_layer {

class CountingAccountant final : public Accountant {
 public:
  Status charge(NodeId node, Bytes size) override {
    if (on_charge) {
      auto callback = std::exchange(on_charge, nullptr);
      callback();
    }
    auto& used = used_[index_of(node)];
    if (used.load() + size.count() > limit.count()) {
      return {Code::out_of_memory, "node " + std::to_string(index_of(node)) + " has no room for " +
                                       std::to_string(size.count()) + " bytes"};
    }
    const int64_t now = used.fetch_add(size.count()) + size.count();
    if (now > peak_[index_of(node)]) peak_[index_of(node)] = now;
    return {};
  }
  void uncharge(NodeId node, Bytes size) noexcept override { used_[index_of(node)] -= size.count(); }

  int64_t used(size_t node) const { return used_[node]; }
  int64_t peak(size_t node) const { return peak_[node]; }
  void reset_peak() {
    for (size_t i = 0; i < used_.size(); ++i) peak_[i] = used_[i].load();
  }

  Bytes limit = GiB(1);
  std::function<void()> on_charge;  // called once

 private:
  std::array<std::atomic<int64_t>, 4> used_{};
  std::array<std::atomic<int64_t>, 4> peak_{};
};

class SimBackendTest : public testing::Test {
 protected:
  static constexpr NodeId kHostNode{2};

  void SetUp() override {
    std::vector<std::shared_ptr<sim::Accelerator>> accelerators;
    for (const char* name : {"sim:0", "sim:1"}) {
      sim::Options options;
      options.name = name;
      options.capacity = MiB(64);
      options.visibility = visibility();
      accelerators.push_back(std::make_shared<sim::Accelerator>(options));
    }
    const std::array nodes = {NodeId{0}, NodeId{1}};
    sim_backend::install(std::move(accelerators), &accountant(), nodes);
    accountant().limit = GiB(1);
    at::manual_seed(7);
  }

  // Nothing leaks, and the accountant agrees with a recount.
  void TearDown() override {
    for (c10::DeviceIndex index = 0; index < 2; ++index) {
      EXPECT_EQ(sim_backend::accelerator(index).live().count(), 0);
      EXPECT_EQ(accountant().used(static_cast<size_t>(index)), 0);
    }
  }

  virtual sim::Visibility visibility() const { return sim::Visibility::late; }

  // Lives until the process ends: memory may be freed late.
  static CountingAccountant& accountant() {
    static auto& accountant = *new CountingAccountant;
    return accountant;
  }

  static at::Tensor there(const at::Tensor& tensor, int index = 0) {
    return tensor.to(c10::Device(c10::kHPU, static_cast<c10::DeviceIndex>(index)));
  }
  static at::Tensor bytes_of(const at::Tensor& tensor) { return tensor.cpu().contiguous(); }

  static void expect_same(const at::Tensor& actual, const at::Tensor& expected) {
    ASSERT_EQ(actual.sizes(), expected.sizes());
    EXPECT_TRUE(at::equal(bytes_of(actual), bytes_of(expected))) << actual.cpu() << "\nexpected\n"
                                                                 << expected;
  }
  static void expect_recount() {
    for (c10::DeviceIndex index = 0; index < 2; ++index) {
      EXPECT_EQ(sim_backend::accelerator(index).live().count(),
                accountant().used(static_cast<size_t>(index)));
    }
  }
};

}  // namespace innkeeper::torch_layer
