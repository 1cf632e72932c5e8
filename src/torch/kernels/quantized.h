// What is said where a quantized tensor would become managed, behind the operator's name.
#pragma once

namespace innkeeper::torch_layer {

inline constexpr const char* kNoQuantized =
    ": the managed device has no quantized tensors; keep them on the CPU, or send x.dequantize()";

}  // namespace innkeeper::torch_layer
