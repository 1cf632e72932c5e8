// The part of NCCL's C interface that the fake answers, declared from its public documentation.
#pragma once

#include <cstddef>

namespace fake_nccl {

using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kSystemError = 2;
inline constexpr Result kInvalidArgument = 4;

inline constexpr int kVersion = 22907;

struct UniqueId {
  char internal[128];
};

enum class Type : int {
  int8,
  uint8,
  int32,
  uint32,
  int64,
  uint64,
  float16,
  float32,
  float64,
  bfloat16,
};

enum class Operation : int { sum, product, max, min, average };

// Bytes of one number; 0 for an unsupported type.
size_t size_of(Type type);

}  // namespace fake_nccl
