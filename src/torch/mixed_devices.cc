// Which operators take CPU tensors beside managed ones, and the error for the rest (decision 2).
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "torch/fallback.h"
#include "torch/handle.h"

namespace innkeeper::torch_layer {
namespace {

using Kind = ArgPlan::Kind;

// Where CUDA takes operands of any shape from the CPU. Everywhere it takes 0-dim tensors that are only read.
constexpr std::array<std::string_view, 14> kTakesCpu = {
    "aten::index",                // indices
    "aten::index_put",            // indices
    "aten::index_put_",
    "aten::_index_put_impl",
    "aten::_index_put_impl_",
    "aten::_unsafe_index",
    "aten::_unsafe_index_put",
    "aten::_unsafe_masked_index",
    "aten::_unsafe_masked_index_put_accumulate",
    "aten::_ctc_loss",            // targets, lengths
    "aten::_ctc_loss_backward",
    "aten::_cudnn_ctc_loss",
    "aten::_use_cudnn_ctc_loss",
    "aten::_pad_packed_sequence", // batch sizes
};

struct Finding {
  std::optional<c10::Device> first;    // of the first tensor that decides
  std::optional<c10::Device> other;    // of one that disagrees
  bool managed = false;
};

void look_at(Finding& finding, const at::Tensor& tensor, bool written) {
  if (!tensor.defined()) return;
  const c10::Device device = tensor.device();
  if (device.type() == kManagedType) finding.managed = true;
  if (device.is_meta() || (device.is_cpu() && tensor.dim() == 0 && !written)) return;
  if (!finding.first.has_value()) {
    finding.first = device;
  } else if (!finding.other.has_value() && device != *finding.first) {
    finding.other = device;
  }
}

}  // namespace

ManagedOp::ManagedOp(const OpPlan* its_plan)
    : plan(its_plan),
      takes_cpu_operands(std::find(kTakesCpu.begin(), kTakesCpu.end(), its_plan->op.schema().name()) !=
                         kTakesCpu.end()),
      // Its schema has a dropout, but the kernel for CPUs refuses any.
      draws_from_default_generator(its_plan->random_without_generator &&
                                   its_plan->op.schema().name() !=
                                       "aten::_scaled_dot_product_flash_attention_for_cpu") {}

void refuse_mixed_devices(const ManagedOp& op, c10::ArrayRef<c10::IValue> arguments) {
  if (op.takes_cpu_operands || !op.plan->aten) return;
  Finding finding;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = arguments[i];
    const ArgPlan& arg = op.plan->args[i];
    if (arg.kind == Kind::tensor) {
      if (value.isTensor()) look_at(finding, value.toTensor(), arg.written);
    } else if (arg.kind == Kind::tensor_list && value.isTensorList()) {
      const auto list = value.toTensorList();
      for (size_t k = 0; k < list.size(); ++k) look_at(finding, list.get(k), arg.written);
    }
  }
  if (!finding.managed || !finding.other.has_value()) return;
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", *finding.first,
              " and ", *finding.other, "!", " (when running ", op.plan->op.schema().name(), ")");
}

}  // namespace innkeeper::torch_layer
