// The managed device as at::getAccelerator's accelerator.
#include <ATen/Context.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "torch/kernels/copy.h"
#include "torch/memory/address_space.h"
#include "torch/memory/device_index.h"
#include "torch/memory/handle.h"
#include "torch/memory/pinned_memory.h"
#include "torch/process/fork.h"
#include "torch/random/random_stream.h"
#include "torch/start/shell.h"

namespace innkeeper::torch_layer {
namespace {

// The runtime starts at the first tensor, so no hook starts it.
class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex index) const override {
    return index >= 0 && index < index_limit();
  }

  c10::DeviceIndex deviceCount() const override { return device_count(); }
  void setCurrentDevice(c10::DeviceIndex index) const override { (void)exchangeDevice(index); }
  c10::DeviceIndex getCurrentDevice() const override { return current_index(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    check_device_index(index);
    return exchange_index(index);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchangeDevice(index);
  }

  bool isPinnedPtr(const void* data) const override { return is_pinned_address(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  c10::Device getDeviceFromPtr(void* data) const override {
    refuse_in_forked_child();
    const AddressSpace::Range* range = address_space().find(data);
    const auto* const block = range == nullptr ? nullptr : static_cast<const Block*>(range->owner.load());
    TORCH_CHECK(block != nullptr, "no managed tensor is at address ", data);
    return device_at(attachment_of(*block).device_index);
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    refuse_in_forked_child();
    check_expected_index(index);
    return current_stream(resolved_index(index)).generator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    check_expected_index(index);
    return new_generator(resolved_index(index));
  }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const override {
    resize_storage(storage, size);
  }
};

}  // namespace

void register_hooks() {
  static Hooks& hooks = *new Hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  // Before this call, PyTorch considers no memory of any allocator as pinned, because with CUDA it allocates
  // without these hooks.
  at::globalContext().lazyInitDevice(kManagedType);
  register_host_allocator();
}

}  // namespace innkeeper::torch_layer
