#include "torch/registry/managed_op.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace innkeeper::torch_layer {
namespace {

// Operators for which CUDA takes operands of any shape from the CPU. All operators take 0-dim CPU tensors
// that are only read.
constexpr std::array<std::string_view, 15> kTakesCpu = {
    "aten::index",      // Indices.
    "aten::index_put",  // Indices.
    "aten::index_put_",
    "aten::_index_put_impl",
    "aten::_index_put_impl_",
    "aten::_unsafe_index",
    "aten::_unsafe_index_put",
    "aten::_unsafe_masked_index",
    "aten::_unsafe_masked_index_put_accumulate",
    "aten::_ctc_loss",  // Targets and lengths.
    "aten::_ctc_loss_backward",
    "aten::_cudnn_ctc_loss",
    "aten::_use_cudnn_ctc_loss",
    "aten::_pad_packed_sequence",  // Batch sizes.
    "aten::_nested_from_padded",   // Sizes of a nested tensor.
};

}  // namespace

ManagedOp::ManagedOp(const Signature* its_signature)
    : signature(its_signature),
      takes_cpu_operands(std::find(kTakesCpu.begin(), kTakesCpu.end(), its_signature->op.schema().name()) !=
                         kTakesCpu.end()),
      // The excepted operator's schema has a dropout, but its kernel for CPUs refuses any.
      draws_from_default_generator(its_signature->random_without_generator &&
                                   its_signature->op.schema().name() !=
                                       "aten::_scaled_dot_product_flash_attention_for_cpu") {}

}  // namespace innkeeper::torch_layer
