// c10's view of an accelerator keeps the promises of device_api.h, and so does the host of a process with
// PyTorch. The accelerator is simulated; in a build with CUDA, the runtime's GPUs are tested as well.
#include "support/device_contract.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/accelerator.h"
#include "torch/accelerator/c10_device.h"
#include "torch/process/faults.h"
#include "torch/sim/sim_backend.h"
#ifdef INNKEEPER_WITH_CUDA
#include <c10/cuda/CUDAFunctions.h>

#include "torch/cuda/cuda_backend.h"
#endif

namespace innkeeper::torch_layer {
namespace {

using test::Books;
using test::Contents;
using test::Rig;
using test::RigKind;

// An allocator of c10's keeps its accountant for its life.
Books& the_books() {
  static auto& books = *new Books;
  return books;
}

class C10Rig : public Rig {
 public:
  Books& books() override { return the_books(); }
  void fill(void* data, Bytes size, int value) override { bytes_at(data, size).fill_(value); }
  int look(const void* data, Bytes size) override {
    const at::Tensor seen = bytes_at(const_cast<void*>(data), size).cpu();
    const int first = seen[0].item<uint8_t>();
    return seen.eq(first).all().item<bool>() ? first : -1;
  }

 protected:
  C10Rig(c10::DeviceType type, c10::DispatchKey key) : type_(type), key_(key) { books().open(); }
  c10::Device gpu(int index) const { return {type_, static_cast<c10::DeviceIndex>(index)}; }

 private:
  at::Tensor bytes_at(void* data, Bytes size) const {
    auto storage = c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), static_cast<size_t>(size.count()), c10::DataPtr(data, gpu(0)),
        /*allocator=*/nullptr, /*resizable=*/false);
    auto tensor = c10::make_intrusive<c10::TensorImpl>(
        c10::Storage(std::move(storage)), c10::DispatchKeySet(key_), caffe2::TypeMeta::Make<uint8_t>());
    tensor->set_sizes_contiguous({size.count()});
    return at::Tensor(std::move(tensor));
  }

  const c10::DeviceType type_;
  const c10::DispatchKey key_;
};

class SimRig final : public C10Rig {
 public:
  SimRig(sim::Visibility visibility, uint64_t seed) : C10Rig(c10::kHPU, c10::DispatchKey::HPU) {
    std::vector<std::shared_ptr<sim::Accelerator>> gpus;
    for (const char* name : {"sim:0", "sim:1"}) {
      gpus.push_back(std::make_shared<sim::Accelerator>(
          sim::Options{.name = name, .capacity = MiB(64), .visibility = visibility, .seed = seed++}));
    }
    sim_backend::install(gpus, &books(), std::array{Books::kDevice, Books::kPeerNode});
    const auto make = [&](int index) {
      const auto& accelerator = gpus[static_cast<size_t>(index)];
      return std::make_unique<C10Device>(
          accelerator->options().name, gpu(index), c10::DispatchKey::HPU,
          [accelerator] { return accelerator->live(); }, sim_backend::make_memory_order(accelerator));
    };
    device_ = make(0);
    peer_ = make(1);
  }
  Bytes too_much() const override { return MiB(65); }
  ~SimRig() override { faults::arm(0, 0, 0); }
  void fail_next_copy() override { faults::arm(static_cast<unsigned>(faults::Fault::copy), 1, 0); }
};

class HostNodeRig final : public Rig {
 public:
  HostNodeRig() {
    device_ = std::make_unique<HostNode>("host", Slabs::Options());
    device_->attach(Books::kDevice, &books_);
  }
  Books& books() override { return books_; }
  Bytes too_much() const override { return Bytes(int64_t{1} << 50); }

 private:
  Books books_;
};

#ifdef INNKEEPER_WITH_CUDA
class CudaRig final : public C10Rig {
 public:
  CudaRig() : C10Rig(c10::kCUDA, c10::DispatchKey::CUDA) {
    std::vector<NodeId> nodes(static_cast<size_t>(c10::cuda::device_count()), kNoNode);
    const auto make = [&](int index, NodeId node) {
      nodes[static_cast<size_t>(index)] = node;
      return std::make_unique<C10Device>(
          "cuda:" + std::to_string(index), gpu(index), c10::DispatchKey::CUDA,
          [index] { return cuda_backend::live(static_cast<c10::DeviceIndex>(index)); },
          cuda_backend::make_memory_order(static_cast<c10::DeviceIndex>(index)));
    };
    device_ = make(0, Books::kDevice);
    if (c10::cuda::device_count() > 1) peer_ = make(1, Books::kPeerNode);
    const auto relief = [](NodeId, Bytes) { return Status(Code::out_of_memory, "nothing can leave"); };
    cuda_backend::install(&books(), relief, nodes);
  }
  ~CudaRig() override {
    c10::cuda::device_synchronize();  // The device may be destroyed by now.
    for (void* const data : locked_) hooks_.unlock(data, 0);
    cuda_backend::remove();
  }
  // Otherwise a copy ends before the call returns, and shows no missing wait.
  void lock(Contents& memory) override {
    if (hooks_.lock(memory.data(), memory.size()).ok()) locked_.push_back(memory.data());
  }
  Bytes charge_of(Bytes size) const override {
    constexpr int64_t kGranule = 512;  // Granule of the caching allocator, bytes.
    return Bytes((size.count() + kGranule - 1) / kGranule * kGranule);
  }
  Bytes too_much() const override { return GiB(int64_t{1} << 12); }

 private:
  static constexpr std::array<c10::DeviceIndex, 1> kFirst = {0};
  const Slabs::Hooks hooks_ = cuda_backend::slab_hooks(kFirst);
  std::vector<void*> locked_;
};
#endif

std::vector<RigKind> kinds() {
  using namespace test;  // NOLINT: the offers
  constexpr unsigned kGpu = kKernels | kPeer | kFull | kReuses | kPolls | kFailures;
  std::vector<RigKind> all = {{"HostNode", kFull | kPolls, [] { return std::make_unique<HostNodeRig>(); }}};
  const auto add = [&](const std::string& name, sim::Visibility visibility, uint64_t seed) {
    const unsigned late = visibility == sim::Visibility::late ? unsigned{kLate} : 0;
    all.push_back({name, kGpu | late, [=] { return std::make_unique<SimRig>(visibility, seed); }});
  };
  add("LateSim", sim::Visibility::late, 1);
  add("EarlySim", sim::Visibility::early, 1);
  add("RandomSim1", sim::Visibility::random, 1);
  add("RandomSim2", sim::Visibility::random, 2);
#ifdef INNKEEPER_WITH_CUDA
  if (c10::cuda::device_count() > 0) {
    const unsigned peer = c10::cuda::device_count() > 1 ? unsigned{kPeer} : 0;
    const char* const fake = std::getenv("FAKE_CUDA_MODE");
    const unsigned late = fake != nullptr && std::string_view(fake) == "late" ? unsigned{kLate} : 0;
    all.push_back({"Cuda", kKernels | kFull | kReuses | kPolls | peer | late,
                   [] { return std::make_unique<CudaRig>(); }});
  }
#endif
  return all;
}

class DeviceContract : public testing::TestWithParam<test::ContractCase> {};

TEST_P(DeviceContract, IsKept) {
  EXPECT_EQ(test::verdict(GetParam().kind, GetParam().check, /*steps=*/25), "");
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceContract, testing::ValuesIn(test::contract_cases(kinds())),
                         [](const auto& test) { return name_of(test.param); });

#ifdef INNKEEPER_WITH_CUDA
// Some 10 (a GH200, an L4) to 80 (an RTX 4090 in a slot of PCIe 3) are known.
TEST(Gpu, SaysNothingOrSomethingLikelyOfItsLink) {
  if (c10::cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
  const double slower = plan::slower(cuda_backend::speed(0, cuda_backend::model(0)));
  EXPECT_GT(slower, 1);
  EXPECT_LT(slower, 500);
}
#endif

}  // namespace
}  // namespace innkeeper::torch_layer
