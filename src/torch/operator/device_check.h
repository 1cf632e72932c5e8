// Finds operands on several devices. The operator moves CPU tensors to the managed device (mixed_move.h), or
// throws PyTorch's own error where CUDA would. 0-dim CPU tensors that are only read may stand beside tensors
// of any device, as on CUDA.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string_view>

#include "torch/memory/handle.h"

namespace innkeeper::torch_layer {

class DeviceCheck {
 public:
  void look_at(const at::Tensor& tensor, bool written) {
    if (!tensor.defined()) return;
    const c10::Device device = tensor.device();
    if (device.type() == kManagedType) {
      managed_ = true;
    } else if (device.is_meta() || (device.is_cpu() && tensor.dim() == 0 && !written)) {
      return;
    }
    if (!first_.has_value()) {
      first_ = device;
    } else if (!other_.has_value() && device != *first_) {
      other_ = device;
    }
  }
  bool any_managed() const { return managed_; }
  bool mixed() const { return managed_ && other_.has_value(); }
  // Throws MixedOperands if a CPU tensor is to be moved (mixed_move.h), else PyTorch's error.
  void refuse_mixed(std::string_view op) const {
    if (mixed()) [[unlikely]]
      move_or_refuse(op, *first_, *other_);
  }
  [[noreturn]] static void move_or_refuse(std::string_view op, c10::Device first, c10::Device other);
  [[noreturn]] static void refuse(std::string_view op, c10::Device first, c10::Device other);

 private:
  std::optional<c10::Device> first_;  // Device of the first tensor that counts.
  std::optional<c10::Device> other_;  // Device of the first tensor on another device than first_.
  bool managed_ = false;
};

}  // namespace innkeeper::torch_layer
