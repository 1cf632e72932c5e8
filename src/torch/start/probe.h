// Measures the operations, memory accesses and copies of a GPU per second, for the price of kernels
// (kernel_clock.h) and for plans. The first operator after the first eviction starts the probe, so a program
// that fits never pays for it.
//
// The matrix product is as large as the free space allows. Copies run on streams of their own concurrently
// with kernels, as the engine's do. Times come from the device's events, so a simulated GPU is measured by
// its virtual clock. Work that is too short to be measured, because free space or host memory is scarce, is
// left out.
#pragma once

#include <c10/core/Device.h>

#include "base/types.h"
#include "cost/gpu_model.h"
#include "cost/measured.h"
#include "device/device_api.h"

namespace innkeeper::torch_layer {

struct ProbeSetup {
  c10::Device device;
  const cost::GpuModel& gpu;      // Expected rates, from the GPU's name.
  double link = 0;                // Expected bytes per second; 0: unknown.
  Bytes space{0};                 // Maximum bytes that the probe allocates at one time.
  Bytes cache{0};                 // Last-level cache; smaller data may not reach the GPU's memory.
  bool products = true;           // Whether to multiply matrices.
  Device* host_memory = nullptr;  // Page-locked memory to copy from and to; null: copies are not measured.
};

// Takes 100 ms at most, unless the device is ten times slower than expected; after 60 ms the probe starts no
// further measurement. Never throws: a failed measurement has no result. Draws no random number, and changes
// no setting.
cost::Measured probe(const ProbeSetup& setup) noexcept;

}  // namespace innkeeper::torch_layer
