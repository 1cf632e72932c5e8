// Takes the HPU device type: guard, allocator, hooks and operators.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Allocator.h>
#include <torch/library.h>

#include <mutex>

#include "torch/compat.h"
#include "torch/memory/cpu_allocator.h"
#include "torch/registry/library_operators.h"
#include "torch/registry/register_ops.h"
#include "torch/sim/allocator.h"
#include "torch/sim/copy.h"
#include "torch/sim/current.h"
#include "torch/sim/factories.h"
#include "torch/sim/guard.h"
#include "torch/sim/kernel.h"
#include "torch/sim/machine.h"

namespace innkeeper::torch_layer::sim_backend {
namespace {

using c10::DeviceIndex;
using c10::DispatchKey;

// Random numbers come from CPU generators, because operators run CPU kernels.
struct Hooks final : at::HPUHooksInterface {
  // Whether a user may name the device. False, because the profiler asks this and would then look for
  // torch.hpu.
  bool hasHPU() const override { return false; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return count() > 0; }
  void init() const override {}
  bool hasPrimaryContext(DeviceIndex index) const override { return index < count(); }
  DeviceIndex deviceCount() const override { return count(); }
  void setCurrentDevice(DeviceIndex index) const override { current.device = index; }
  DeviceIndex getCurrentDevice() const override { return current_device(); }
  DeviceIndex exchangeDevice(DeviceIndex index) const override {
    return std::exchange(current.device, index);
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex index) const override {
    return index < 0 ? current_device() : exchangeDevice(index);
  }
  at::Device getDeviceFromPtr(void* data) const override { return {c10::kHPU, machine().index_of(data)}; }
  const at::Generator& getDefaultGenerator(DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  at::Generator getNewGenerator(DeviceIndex) const override { return at::detail::createCPUGenerator(); }
};

void fallback_kernel(const c10::OperatorHandle& op, c10::Stack* stack) { fallback(op, stack); }

void register_operators() {
  // Kept for the life of the process: a registration ends with its handle.
  static auto& library =
      *new torch::Library(torch::Library::IMPL, "aten", DispatchKey::HPU, __FILE__, __LINE__);
  static auto& handles = *new std::vector<c10::RegistrationHandleRAII>;
  register_factories(library);
  register_copies(library);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorHandle& op : ops_to_register(DispatchKey::HPU)) {
    if (!op.hasComputedKernelForDispatchKey(DispatchKey::CPU))
      continue;  // Without a CPU kernel there is none for the simulator.
    handles.push_back(dispatcher.registerImpl(
        op.operator_name(), DispatchKey::HPU,
        c10::KernelFunction::makeFromBoxedFunctor<BoxedKernel>(std::make_unique<BoxedKernel>(op)),
        std::nullopt, nullptr, "innkeeper: simulated accelerator"));
  }
  handles.push_back(dispatcher.registerFallback(
      DispatchKey::HPU, c10::KernelFunction::makeFromBoxedFunction<&fallback_kernel>(),
      "innkeeper: simulated accelerator"));
  register_for_libraries(DispatchKey::HPU, c10::KernelFunction::makeFromBoxedFunction<&fallback_kernel>(),
                         "innkeeper: simulated accelerator");
}

}  // namespace

void install(std::vector<std::shared_ptr<sim::Accelerator>> accelerators, Accountant* accountant,
             std::span<const NodeId> nodes) {
  machine().replace(std::move(accelerators), accountant, nodes);
  static std::once_flag once;
  std::call_once(once, [] {
    install_cpu_allocator();
    c10::SetAllocator(c10::kHPU, &device_allocator());
    compat::register_hpu_hooks<Hooks>();
    register_guard();
    register_operators();
  });
}

}  // namespace innkeeper::torch_layer::sim_backend
