// A small simulated GPU, and kernels on it that write and check bytes.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>

#include "sim/accelerator.h"

namespace innkeeper::sim {

using Direction = Accelerator::Direction;

inline constexpr size_t kSize = 4096;  // Bytes of a buffer.
inline constexpr QueueIndex kCompute = 0;
inline constexpr QueueIndex kIn = 1;
inline constexpr QueueIndex kOut = 2;

inline Options options(Visibility visibility, uint64_t seed = 0, std::string name = "sim:0") {
  return {.name = std::move(name), .capacity = MiB(1), .visibility = visibility, .seed = seed};
}

inline unsigned char* take(Accelerator& gpu, size_t size = kSize) {
  Result<void*> data = gpu.allocate(Bytes(static_cast<int64_t>(size)));
  EXPECT_TRUE(data.ok()) << data.status().message();
  return static_cast<unsigned char*>(data.value());
}

// A kernel that fills a buffer.
inline void fill(Accelerator& gpu, void* data, int value, size_t size = kSize, QueueIndex queue = kCompute) {
  gpu.begin_kernel(queue);
  if (gpu.options().data) std::memset(data, value, size);
  const WrittenRange written{data, size};
  gpu.end_kernel(queue, {&written, 1}, {});
}

// Runs a kernel that only reads. Checks that all bytes agree, and returns the first.
inline int look(Accelerator& gpu, const unsigned char* data, size_t size = kSize,
                QueueIndex queue = kCompute) {
  gpu.begin_kernel(queue);
  const int seen = data[0];
  for (size_t i = 0; i < size; ++i) EXPECT_EQ(data[i], seen);
  gpu.end_kernel(queue, {}, {});
  return seen;
}

}  // namespace innkeeper::sim
