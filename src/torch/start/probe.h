// Measures what a GPU computes, touches and copies per second, for the price of kernels (kernel_clock.h) and
// for plans. The first operator after the first eviction asks for it, so a program that fits never pays.
//
// The matrix product is as large as the room allows. Copies run on streams of their
// own beside kernels, as the engine's do. Times are those of the device's events, so a simulated GPU is
// measured by its virtual clock. What is too short to be measured, because room or host memory is scarce, is
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
  const cost::GpuModel& gpu;      // By its name: what is expected.
  double link = 0;                // Bytes per second, as expected; 0: unknown.
  Bytes room{0};                  // The probe allocates no more than this at a time.
  Bytes cache{0};                 // The GPU's last level: what is smaller may not reach its memory.
  bool products = true;           // Whether to multiply matrices.
  Device* host_memory = nullptr;  // Page-locked memory to copy from and to; null: copies are not measured.
};

// Takes 100 ms at most, unless the device is slower than a tenth of what is expected: after that long nothing
// more is begun. Never throws: what fails is not measured. Draws no random number, and changes no setting.
cost::Measured probe(const ProbeSetup& setup) noexcept;

}  // namespace innkeeper::torch_layer
