// The arithmetic of a kernel's products, which decides a GPU's rate.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace innkeeper::cost {

// tf32: products of float32 tensors whose factors are rounded to ten bits of mantissa
// (torch.backends.cuda.matmul.allow_tf32).
enum class Precision : uint8_t { fp64, fp32, tf32, bf16, fp16, fp8, int8 };

inline constexpr std::array<std::string_view, 7> kPrecisionNames = {"fp64", "fp32", "tf32", "bf16",
                                                                    "fp16", "fp8",  "int8"};

inline std::string_view name_of(Precision precision) {
  return kPrecisionNames[static_cast<size_t>(precision)];
}

inline std::optional<Precision> precision_named(std::string_view name) {
  for (size_t i = 0; i < kPrecisionNames.size(); ++i) {
    if (kPrecisionNames[i] == name) return static_cast<Precision>(i);
  }
  return std::nullopt;
}

}  // namespace innkeeper::cost
