#include "torch/cuda/autograd_streams.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "torch/memory/handle.h"
#include "torch/process/fork.h"
#include "torch/process/loaded_library.h"

namespace innkeeper::torch_layer::cuda_backend {
namespace {

// Code of the autograd engine: engine.cpp and input_buffer.cpp.
std::array<AddressRange, 2> engine;

// Whether CUDA is in use and the caller is the engine. Before CUDA's allocator is initialized there is no
// CUDA tensor; a query of its devices would start its driver.
bool is_for_cuda(const void* caller) {
  if (!engine[0].contains(caller) && !engine[1].contains(caller)) return false;
  if (is_forked_child()) return false;  // CUDA must not be called in a child of fork().
  const auto* const allocator = c10::cuda::CUDACachingAllocator::allocator.load();
  return allocator != nullptr &&
         const_cast<c10::cuda::CUDACachingAllocator::CUDAAllocator*>(allocator)->initialized();
}

std::optional<c10::DeviceType> get_accelerator(bool checked) {
  if (is_for_cuda(__builtin_return_address(0))) return c10::kCUDA;
  return at::accelerator::getAccelerator(checked);
}

bool is_accelerator(c10::DeviceType type) {
  if (type == kManagedType && is_for_cuda(__builtin_return_address(0))) return false;
  return at::accelerator::isAccelerator(type);
}

c10::Stream get_current_stream(c10::DeviceIndex index) {
  if (is_for_cuda(__builtin_return_address(0))) return c10::cuda::getCurrentCUDAStream(index).unwrap();
  return at::accelerator::getCurrentStream(index);
}

}  // namespace

void keep_autograd_streams() {
  const LoadedLibrary library(reinterpret_cast<const void*>(&at::accelerator::getAccelerator));
  engine = {library.code_of("_ZN5torch8autograd6Engine"), library.code_of("_ZN5torch8autograd11InputBuffer")};
  struct Ours {
    const char* name;
    void* function;
  };
  const std::array<Ours, 3> all = {{
      {"_ZN2at11accelerator14getAcceleratorEb", reinterpret_cast<void*>(&get_accelerator)},
      {"_ZN2at11accelerator13isAcceleratorEN3c1010DeviceTypeE", reinterpret_cast<void*>(&is_accelerator)},
      {"_ZN2at11accelerator16getCurrentStreamEa", reinterpret_cast<void*>(&get_current_stream)},
  }};
  std::array<std::vector<void**>, 3> slots;
  std::vector<std::pair<void**, void*>> before;
  bool found = engine[0].begin != 0 && engine[1].begin != 0;
  for (size_t i = 0; i < all.size(); ++i) {
    slots[i] = library.slots_of(all[i].name);
    found = found && !slots[i].empty();
  }
  for (size_t i = 0; found && i < all.size(); ++i) {
    for (void** const slot : slots[i]) {
      before.emplace_back(slot, *slot);
      found = library.set(slot, all[i].function) && found;
    }
  }
  if (!found) {
    for (const auto& [slot, function] : before) (void)library.set(slot, function);
    log(LogLevel::warn,
        "PyTorch's autograd engine is not as expected: the backward pass of plain CUDA tensors may fail "
        "in this process");
  }
}

}  // namespace innkeeper::torch_layer::cuda_backend
