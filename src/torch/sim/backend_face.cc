// Simulated accelerators as a kind of accelerator (accelerator/backend.h).
#include <memory>
#include <vector>

#include "torch/accelerator/backend.h"
#include "torch/accelerator/c10_device.h"
#include "torch/sim/current.h"
#include "torch/sim/sim_backend.h"

namespace innkeeper::torch_layer::sim_backend {
namespace {

class SimBackend final : public Backend {
 public:
  std::string_view kind() const override { return kSim; }
  c10::DeviceType type() const override { return c10::kHPU; }
  c10::DispatchKey key() const override { return c10::DispatchKey::HPU; }
  c10::DispatchKey kernel_key() const override { return c10::DispatchKey::CPU; }
  bool is_programs_too() const override { return false; }
  bool works_unseen() const override { return false; }  // The simulator must be told the time.
  bool multiplies_at_its_rates() const override { return !has_data(); }  // With data, at the CPU's speed.

  void open(const MachineSpec& spec, Accountant& accountant) override {
    std::vector<std::shared_ptr<sim::Accelerator>> accelerators;
    std::vector<NodeId> nodes;
    for (size_t i = 0; i < spec.nodes.size(); ++i) {
      if (spec.nodes[i].accelerator != kind()) continue;
      accelerators.push_back(std::make_shared<sim::Accelerator>(spec.nodes[i].sim));
      nodes.push_back(NodeId{static_cast<uint8_t>(i)});
    }
    // The device type is taken only for a machine with simulated accelerators.
    if (!accelerators.empty() || count() != 0) install(std::move(accelerators), &accountant, nodes);
  }

  AcceleratorNode make_node(const NodeSpec& spec) override {
    const auto index = static_cast<c10::DeviceIndex>(*spec.index);
    std::shared_ptr<sim::Accelerator> accelerator = shared_accelerator(index);
    AcceleratorNode made;
    made.capacity = spec.budget.value_or(Bytes(0));
    made.setup.device = std::make_unique<C10Device>(
        spec.name, c10::Device(type(), index), key(), [accelerator] { return accelerator->live(); },
        make_memory_order(accelerator));
    if (const sim::Options& options = accelerator->options(); options.times_hidden) {
      made.setup.speed = {options.gpu.bytes(), options.host_link.bandwidth};
      made.kernel_clock = std::make_shared<KernelClock>(options.gpu);
      made.setup.time = [accelerator, kernels = made.kernel_clock] {
        return ComputeTime{accelerator->time(0), kernels->seconds(), accelerator->host_time()};
      };
    } else {
      made.setup.speed = {accelerator->gpu().bytes(), accelerator->host_link().bandwidth};
      made.setup.time = [accelerator] {
        return ComputeTime{accelerator->time(0), accelerator->busy(0), accelerator->host_time()};
      };
    }
    return made;
  }

  std::shared_ptr<void> at_its_rates() override { return std::make_shared<AtItsRates>(); }
  std::optional<double> time(c10::DeviceIndex index) override { return accelerator(index).time(); }

  void keep_busy(c10::DeviceIndex index, double seconds) override {
    sim::Accelerator& busy = accelerator(index);
    busy.begin_kernel(kComputeQueue);
    busy.end_kernel(kComputeQueue, {}, {.flops = seconds * busy.options().gpu.flops(cost::Precision::bf16)});
  }
};

}  // namespace

Backend& backend() {
  static auto& it = *new SimBackend;
  return it;
}

}  // namespace innkeeper::torch_layer::sim_backend
