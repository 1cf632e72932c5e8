#include "torch/start/vector_math.h"

#include <ATen/CPUFunctions.h>
#include <ATen/EmptyTensor.h>

namespace innkeeper::torch_layer {
namespace {

// The functions that ATen/cpu/vml.h passes to MKL, without the dispatcher, because the runtime may start
// inside of modes.
void settle(const at::Tensor& half) {
  for (const auto function :
       {&at::cpu::acos, &at::cpu::asin, &at::cpu::atan, &at::cpu::cos, &at::cpu::erf, &at::cpu::erfc,
        &at::cpu::erfinv, &at::cpu::exp, &at::cpu::log, &at::cpu::log10, &at::cpu::log2, &at::cpu::sin,
        &at::cpu::sqrt, &at::cpu::tan, &at::cpu::tanh, &at::cpu::trunc}) {
    (void)function(half);
  }
}

}  // namespace

void settle_vector_math() {
  const at::Tensor single = at::detail::empty_cpu({1}, c10::kFloat);
  *single.mutable_data_ptr<float>() = 0.5F;  // All functions are defined at 0.5.
  settle(single);
  const at::Tensor twice = at::detail::empty_cpu({1}, c10::kDouble);
  *twice.mutable_data_ptr<double>() = 0.5;
  settle(twice);
}

}  // namespace innkeeper::torch_layer
