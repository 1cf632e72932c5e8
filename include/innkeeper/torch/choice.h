// The chosen GPUs as PyTorch's devices. PyTorch's C++ interface cannot limit memory without CUDA's headers. A
// program that has them calls
//
//   c10::cuda::CUDACachingAllocator::setMemoryFraction(gpu.memory_fractions()[0], gpu.ordinals()[0]);
#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "innkeeper/choice.h"

namespace innkeeper {

inline std::vector<c10::Device> devices(const Choice& choice) {
  std::vector<c10::Device> result;
  for (const int ordinal : choice.ordinals())
    result.emplace_back(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(ordinal));
  return result;
}

// Returns the first of them.
inline c10::Device device(const Choice& choice) { return devices(choice).front(); }

}  // namespace innkeeper
