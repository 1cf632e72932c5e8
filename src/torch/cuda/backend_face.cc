// CUDA's GPUs as a kind of accelerator (accelerator/backend.h).
#include <chrono>
#include <memory>
#include <vector>

#include "torch/accelerator/backend.h"
#include "torch/accelerator/c10_device.h"
#include "torch/cuda/autograd_streams.h"
#include "torch/cuda/cuda_backend.h"

namespace innkeeper::torch_layer::cuda_backend {
namespace {

class CudaBackend final : public Backend {
 public:
  std::string_view kind() const override { return kCuda; }
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::DispatchKey key() const override { return c10::DispatchKey::CUDA; }
  bool keeps_pinned_memory() const override { return true; }

  void load() override { keep_autograd_streams(); }
  Status resolve(MachineSpec& spec) override { return cuda_backend::resolve(spec); }

  AcceleratorNode make_node(const NodeSpec& spec) override {
    const auto index = static_cast<c10::DeviceIndex>(*spec.index);
    AcceleratorNode made;
    made.capacity = cuda_backend::capacity(index);
    made.setup.device = std::make_unique<C10Device>(
        spec.name, c10::Device(type(), index), key(), [index] { return live(index); },
        make_memory_order(index));
    const cost::GpuModel gpu = model(index);
    made.setup.speed = speed(index, gpu);
    made.kernel_clock = std::make_shared<KernelClock>(gpu);
    // Uses the host's clock, because the GPU's is not read: over a period both advance equally.
    made.setup.time = [kernels = made.kernel_clock] {
      const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
      return ComputeTime{now.count(), kernels->seconds(), now.count()};
    };
    return made;
  }

  void start_charging(Accountant* accountant, const Relief& relief, std::span<const ChargedNode> gpus,
                      bool take_all) override {
    std::vector<NodeId> nodes;
    for (const ChargedNode& gpu : gpus) nodes.push_back(gpu.node);
    install(accountant, relief, nodes);
    for (size_t i = 0; i < gpus.size(); ++i) {
      if (gpus[i].node == kNoNode) continue;
      const auto index = static_cast<c10::DeviceIndex>(i);
      cuda_backend::limit(index, gpus[i].budget);
      if (take_all) take(index, gpus[i].budget);
    }
  }
  void stop_charging() override { remove(); }
  void limit(c10::DeviceIndex index, Bytes budget) override { cuda_backend::limit(index, budget); }
  std::optional<Slabs::Hooks> slab_hooks(std::span<const c10::DeviceIndex> gpus) override {
    return cuda_backend::slab_hooks(gpus);
  }
  void free_workspaces() override { cuda_backend::free_workspaces(); }

  bool has_generators() const override { return true; }
  at::Generator generator(c10::DeviceIndex index, uint64_t seed) override {
    return cuda_backend::generator(index, seed);
  }
  PhiloxState exchange_default_generator(c10::DeviceIndex index, PhiloxState state) override {
    return cuda_backend::exchange_default_generator(index, state);
  }

  bool is_any_captured() override { return cuda_backend::is_any_captured(); }
  bool is_capturing(c10::DeviceIndex index) override { return cuda_backend::is_capturing(index); }
  void spare_captures(c10::DeviceIndex index) override { cuda_backend::spare_captures(index); }

  std::optional<cost::KeptRates> rates_of_today(c10::DeviceIndex index) override {
    return cuda_backend::rates_of_today(index);
  }
  Bytes cache(c10::DeviceIndex index) override { return cuda_backend::cache(index); }
};

}  // namespace

Backend& backend() {
  static auto& it = *new CudaBackend;
  return it;
}

}  // namespace innkeeper::torch_layer::cuda_backend
