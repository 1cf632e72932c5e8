// Streams, events and memory of simulated accelerators: bytes without a wait are poison, and every byte is
// charged.
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sim_fixture.h"
#include "torch/memory/cpu_allocator.h"
#include "torch/sim/allocator.h"

namespace innkeeper::torch_layer {
namespace {

const c10::Device kFirst(c10::kHPU, 0);

c10::Stream copy_stream() {
  return c10::impl::VirtualGuardImpl(c10::kHPU).getStreamFromGlobalPool(kFirst, /*isHighPriority=*/true);
}

class SimStreams : public SimBackendTest, public testing::WithParamInterface<sim::Visibility> {
 protected:
  sim::Visibility visibility() const override { return GetParam(); }
};

std::string visibility_name(const testing::TestParamInfo<sim::Visibility>& instance) {
  switch (instance.param) {
    case sim::Visibility::early: return "early";
    case sim::Visibility::late: return "late";
    case sim::Visibility::random: return "random";
  }
  return "";
}

INSTANTIATE_TEST_SUITE_P(, SimStreams,
                         testing::Values(sim::Visibility::late, sim::Visibility::early,
                                         sim::Visibility::random),
                         visibility_name);

TEST_P(SimStreams, a_wait_gives_the_data) {
  for (int round = 0; round < 8; ++round) {
    const at::Tensor x = there(at::ones({1000})) + 1;
    const at::Tensor host = at::zeros({1000});
    const c10::Stream side = copy_stream();
    c10::Event computed(c10::kHPU), copied(c10::kHPU);
    computed.record(c10::impl::VirtualGuardImpl(c10::kHPU).getDefaultStream(kFirst));
    computed.block(side);
    {
      const c10::StreamGuard on_side(side);
      host.copy_(x, /*non_blocking=*/true);
      copied.record(side);
    }
    copied.synchronize();
    EXPECT_TRUE(copied.query());
    EXPECT_TRUE(at::equal(host, at::full({1000}, 2.f)));
  }
}

TEST_F(SimBackendTest, a_missing_wait_gives_poison) {
  const at::Tensor x = there(at::ones({1000})) + 1;
  const at::Tensor host = at::zeros({1000});
  {
    const c10::StreamGuard on_side(copy_stream());
    host.copy_(x, /*non_blocking=*/true);
    on_side.current_stream().synchronize();
  }
  EXPECT_FALSE(at::equal(host, at::full({1000}, 2.f)));
  expect_same(x, at::full({1000}, 2.f));  // The stream of the copy sees its result.
}

TEST_F(SimBackendTest, a_kernel_must_wait_for_a_copy) {
  const at::Tensor host = at::ones({1000});
  const at::Tensor x = there(at::zeros({1000}));
  const c10::Stream side = copy_stream();
  const auto fetch = [&] {
    const c10::StreamGuard on_side(side);
    x.copy_(host, /*non_blocking=*/true);
  };
  fetch();
  const at::Tensor early = (x + 1).cpu();
  side.synchronize();
  EXPECT_FALSE(at::equal(early, at::full({1000}, 2.f)));
  fetch();
  c10::Event arrived(c10::kHPU);
  arrived.record(side);
  arrived.block(c10::impl::VirtualGuardImpl(c10::kHPU).getDefaultStream(kFirst));
  expect_same(x + 1, at::full({1000}, 2.f));
}

TEST_F(SimBackendTest, memory_used_on_another_stream_is_freed_after_it) {
  for (const bool recorded : {true, false}) {
    const at::Tensor host = at::zeros({1000});
    const c10::Stream side = copy_stream();
    at::Tensor x = there(at::ones({1000}));
    {
      const c10::StreamGuard on_side(side);
      host.copy_(x, /*non_blocking=*/true);
    }
    if (recorded) x.record_stream(side);
    x.reset();
    side.synchronize();
    EXPECT_EQ(at::equal(host, at::ones({1000})), recorded);
  }
}

TEST_F(SimBackendTest, events_measure_virtual_time) {
  const c10::impl::VirtualGuardImpl guard(c10::kHPU);
  c10::Event begin(c10::kHPU, c10::EventFlag::BACKEND_DEFAULT),
      end(c10::kHPU, c10::EventFlag::BACKEND_DEFAULT);
  const at::Tensor x = there(at::ones({1000}));
  begin.record(guard.getStream(kFirst));
  const at::Tensor y = x + 1;
  end.record(guard.getStream(kFirst));
  end.synchronize();
  begin.synchronize();
  EXPECT_GE(begin.elapsedTime(end), 1e3 * sim_backend::accelerator(0).options().gpu.launch_seconds);
}

TEST_F(SimBackendTest, streams_and_devices_are_per_thread) {
  const c10::impl::VirtualGuardImpl guard(c10::kHPU);
  const c10::Stream side = copy_stream();
  const c10::StreamGuard on_side(side);
  std::thread([&] {
    EXPECT_EQ(guard.getStream(kFirst), guard.getDefaultStream(kFirst));
    guard.setDevice(c10::Device(c10::kHPU, 1));
    EXPECT_EQ(at::empty({1}, c10::Device(c10::kHPU)).device().index(), 1);
  }).join();
  EXPECT_EQ(guard.getStream(kFirst), side);
  EXPECT_EQ(guard.getDevice().index(), 0);
  EXPECT_THROW(guard.setDevice(c10::Device(c10::kHPU, 2)), c10::Error);
}

TEST_F(SimBackendTest, results_and_temporaries_are_charged) {
  const at::Tensor x = there(at::ones({1000}));
  accountant().reset_peak();
  const int64_t before = accountant().used(0);
  const at::Tensor y = at::logsumexp(x, 0);
  EXPECT_EQ(accountant().used(0), before + kAlignment);
  EXPECT_GE(accountant().peak(0), before + 4000);  // Memory of the exponentials.
  expect_recount();
  const auto* allocator = c10::getDeviceAllocator(c10::kHPU);
  const auto stats = const_cast<c10::DeviceAllocator*>(allocator)->getDeviceStats(0);
  EXPECT_EQ(stats.allocated_bytes[0].current, accountant().used(0));
  EXPECT_EQ(stats.allocated_bytes[0].peak, accountant().peak(0));
}

TEST_F(SimBackendTest, a_refused_charge_is_an_out_of_memory_error) {
  const at::Tensor x = there(at::ones({1000}));
  accountant().limit = Bytes(accountant().used(0));
  try {
    x + x;
    FAIL() << "there was no room";
  } catch (const c10::OutOfMemoryError& error) {
    EXPECT_NE(std::string(error.what()).find("node 0 has no room for 4032 bytes"), std::string::npos)
        << error.what();
  }
  accountant().limit = GiB(1);
  EXPECT_THROW(at::empty({1 << 28}, kFirst), c10::OutOfMemoryError);  // More than its memory.
  expect_recount();
  expect_same(x, at::ones({1000}));
}

TEST_F(SimBackendTest, charging_may_evict) {
  const at::Tensor x = there(at::ones({1000}));
  at::Tensor victim = there(at::full({1000}, 3.f));
  const at::Tensor saved = at::zeros({1000});
  accountant().limit = Bytes(accountant().used(0));
  accountant().on_charge = [&] {
    const c10::Stream side = copy_stream();
    c10::Event computed(c10::kHPU);
    computed.record(c10::impl::VirtualGuardImpl(c10::kHPU).getDefaultStream(kFirst));
    computed.block(side);
    const c10::StreamGuard on_side(side);
    const at::Tensor staged = at::empty({1000});  // Not charged to the kernel that allocates it.
    saved.copy_(victim, /*non_blocking=*/true);
    side.synchronize();
    victim.reset();
  };
  expect_same(x + x, at::full({1000}, 2.f));
  EXPECT_TRUE(at::equal(saved, at::full({1000}, 3.f)));
}

TEST_F(SimBackendTest, armed_host_memory_is_charged_to_its_node) {
  at::Tensor charged, free_of_charge;
  {
    const ArmedCpu armed(&accountant(), kHostNode);
    charged = at::empty({100});
    {
      const DisarmedCpu disarmed;
      free_of_charge = at::empty({100});
    }
    const ArmedCpu inner(nullptr, kHostNode);
    free_of_charge = at::empty({100});
  }
  const at::Tensor after = at::empty({100});
  EXPECT_EQ(accountant().used(2), 448);
  EXPECT_EQ(charged_host_memory(kHostNode).count(), 448);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(charged.data_ptr()) % kAlignment, 0u);
  std::thread([&] { charged.reset(); }).join();
  EXPECT_EQ(accountant().used(2), 0);
  EXPECT_EQ(charged_host_memory(kHostNode).count(), 0);
}

TEST_F(SimBackendTest, a_small_piece_that_is_kept_is_charged_to_nobody_until_it_is_taken) {
  const ArmedCpu armed(&accountant(), kHostNode);
  const void* const first = at::empty({100}).data_ptr();
  EXPECT_EQ(accountant().used(2), 0);
  EXPECT_EQ(charged_host_memory(kHostNode).count(), 0);
  const at::Tensor other = at::empty({90});  // Another size, so other memory.
  EXPECT_NE(other.data_ptr(), first);
  EXPECT_EQ(accountant().used(2), 384);
  const at::Tensor again = at::empty({100});
  EXPECT_EQ(accountant().used(2), 384 + 448);
  EXPECT_EQ(charged_host_memory(kHostNode).count(), 384 + 448);
#ifndef __SANITIZE_ADDRESS__  // The address sanitizer keeps no freed memory.
  EXPECT_EQ(again.data_ptr(), first);
#endif
}

TEST_F(SimBackendTest, armed_memory_may_be_allocated_raw) {
  c10::Allocator& allocator = *c10::GetCPUAllocator();
  void* plain = allocator.raw_allocate(100);
  void* charged = nullptr;
  {
    const ArmedCpu armed(&sim_backend::allocate_for_cpu, c10::DeviceIndex{0});
    charged = allocator.raw_allocate(100);
    EXPECT_EQ(accountant().used(0), 128);
    EXPECT_TRUE(sim_backend::accelerator(0).contains(charged));
    allocator.raw_deallocate(plain);
  }
  allocator.raw_deallocate(charged);
  EXPECT_EQ(accountant().used(0), 0);
}

// Raw memory is freed by its address alone, which must tell a charged piece from any other.
TEST_F(SimBackendTest, raw_host_memory_is_uncharged_once_whatever_lies_around_it) {
  c10::Allocator& allocator = *c10::GetCPUAllocator();
  constexpr std::array<size_t, 8> kSizes = {1, 24, 64, 100, 4032, 4096, 65536, size_t{1} << 20};
  std::mt19937 random(7);
  std::vector<std::pair<void*, int64_t>> held;  // Each address with its charge, bytes.
  int64_t charged = 0;
  for (int round = 0; round < 20000; ++round) {
    if (held.size() < 64 && random() % 2 == 0) {
      const size_t size = kSizes.at(random() % kSizes.size());
      const bool counts = random() % 2 == 0;
      std::optional<ArmedCpu> armed;
      if (counts) armed.emplace(&accountant(), kHostNode);
      void* data = allocator.raw_allocate(size);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % kAlignment, 0u);
      std::memset(data, 0x5A, size);
      held.emplace_back(data, counts ? round_up(Bytes(static_cast<int64_t>(size))).count() : 0);
      charged += held.back().second;
    } else if (!held.empty()) {
      std::swap(held.at(random() % held.size()), held.back());
      allocator.raw_deallocate(held.back().first);
      charged -= held.back().second;
      held.pop_back();
    }
    ASSERT_EQ(charged_host_memory(kHostNode).count(), charged);
  }
  for (const auto& [data, bytes] : held) allocator.raw_deallocate(data);
  EXPECT_EQ(charged_host_memory(kHostNode).count(), 0);
  EXPECT_EQ(accountant().used(2), 0);
}

TEST_F(SimBackendTest, a_refused_host_charge_throws) {
  accountant().limit = Bytes(100);
  const ArmedCpu armed(&accountant(), kHostNode);
  EXPECT_THROW(at::empty({100}), c10::OutOfMemoryError);
  EXPECT_EQ(charged_host_memory(kHostNode).count(), 0);
}

TEST_P(SimStreams, threads_compute_side_by_side) {
  const at::Tensor weight = at::randn({32, 32}) / 6;
  const at::Tensor shared = there(weight);
  const auto chain = [](at::Tensor x, const at::Tensor& by) {
    for (int i = 0; i < 50; ++i) x = at::tanh(at::mm(x, by)).add_(0.1);
    return x;
  };
  const at::Tensor expected = chain(weight, weight);
  std::array<at::Tensor, 4> results;
  std::vector<std::thread> threads;
  for (at::Tensor& result : results) {
    threads.emplace_back([&] { result = chain(shared, shared).cpu(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const at::Tensor& result : results) EXPECT_TRUE(at::equal(result, expected));
}

TEST_F(SimBackendTest, nothing_is_allocated_for_no_bytes) {
  const at::Tensor x = at::empty({0, 3}, kFirst);
  EXPECT_EQ(x.data_ptr(), nullptr);
  EXPECT_EQ(accountant().used(0), 0);
  expect_same(x + 1, at::empty({0, 3}));
}

}  // namespace
}  // namespace innkeeper::torch_layer
