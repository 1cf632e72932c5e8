#include "torch/registry/signature.h"

#include <ATen/core/enum_tag.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <array>
#include <memory>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

namespace innkeeper::torch_layer {
namespace {

using Kind = Parameter::Kind;
using c10::TypeKind;

struct HiddenWrite {
  std::string_view op;
  std::string_view argument;
};

// Arguments that kernels write although the schema does not say so. Found on op_db by hashing the operands
// that an operator does not write (on a CPU exactly native_batch_norm's), and by reading the kernels that
// need CUDA.
constexpr std::array kHiddenWrites = {
    HiddenWrite{"aten::native_batch_norm", "running_mean"},
    HiddenWrite{"aten::native_batch_norm", "running_var"},
    HiddenWrite{"aten::cudnn_batch_norm", "running_mean"},
    HiddenWrite{"aten::cudnn_batch_norm", "running_var"},
    HiddenWrite{"aten::miopen_batch_norm", "running_mean"},
    HiddenWrite{"aten::miopen_batch_norm", "running_var"},
    HiddenWrite{"aten::batch_norm_update_stats", "running_mean"},
    HiddenWrite{"aten::batch_norm_update_stats", "running_var"},
    HiddenWrite{"aten::batch_norm_gather_stats", "running_mean"},
    HiddenWrite{"aten::batch_norm_gather_stats", "running_var"},
    HiddenWrite{"aten::batch_norm_gather_stats_with_counts", "running_mean"},
    HiddenWrite{"aten::batch_norm_gather_stats_with_counts", "running_var"},
    HiddenWrite{"aten::_cudnn_rnn", "dropout_state"},
    HiddenWrite{"aten::_cudnn_rnn_backward", "dropout_state"},
    HiddenWrite{"aten::_cudnn_rnn_backward", "reserve"},
    HiddenWrite{"aten::miopen_rnn", "dropout_state"},
    HiddenWrite{"aten::miopen_rnn_backward", "dropout_state"},
    HiddenWrite{"aten::miopen_rnn_backward", "reserve"},
    HiddenWrite{"aten::mkldnn_rnn_layer_backward", "workspace"},
};

// Fused optimizer steps and AMP's unscaling, which work on each element of the lists separately.
constexpr std::array<std::string_view, 5> kForeachNames = {"aten::_fused_adam", "aten::_fused_adamw",
                                                           "aten::_fused_sgd", "aten::_fused_adagrad",
                                                           "aten::_amp_foreach_non_finite_check_and_unscale"};

// Pure operators (signature.h) that are not element-wise. Not listed: sums over a whole tensor, which a host
// with another number of threads adds in another order, and products of matrices, which cost more than
// copies.
constexpr std::string_view kPureNames[] = {"aten::native_layer_norm",
                                           "aten::native_group_norm",
                                           "aten::_fused_rms_norm",
                                           "aten::_softmax",
                                           "aten::_log_softmax",
                                           "aten::_safe_softmax",
                                           "aten::cat",
                                           "aten::stack",
                                           "aten::embedding",
                                           "aten::gather",
                                           "aten::index_select",
                                           "aten::masked_fill",
                                           "aten::constant_pad_nd",
                                           "aten::tril",
                                           "aten::triu",
                                           "aten::flip",
                                           "aten::roll",
                                           "aten::repeat",
                                           "aten::max_pool2d_with_indices",
                                           "aten::avg_pool2d",
                                           "aten::upsample_nearest2d",
                                           "aten::upsample_bilinear2d"};

bool is_pure(const Signature& signature, std::string_view name) {
  if (!signature.aten || signature.draws || signature.any_written || signature.is_view ||
      signature.metadata_write || signature.host_result || signature.foreach || !signature.fresh_results)
    return false;
  return signature.pointwise ||
         std::find(std::begin(kPureNames), std::end(kPureNames), name) != std::end(kPureNames);
}

bool is_foreach(std::string_view name) {
  if (name.starts_with("aten::_foreach_")) return true;
  if (name.ends_with('_')) name.remove_suffix(1);
  return std::find(kForeachNames.begin(), kForeachNames.end(), name) != kForeachNames.end();
}

Kind kind_of(const c10::Type& type) {
  switch (type.kind()) {
    case TypeKind::TensorType: return Kind::tensor;
    case TypeKind::GeneratorType: return Kind::generator;
    case TypeKind::DeviceObjType: return Kind::device;
    case TypeKind::StorageType: return Kind::storage;
    case TypeKind::StreamObjType: return Kind::stream;
    case TypeKind::OptionalType: return kind_of(*type.castRaw<c10::OptionalType>()->getElementType());
    case TypeKind::ListType: {
      const auto& element = *type.castRaw<c10::ListType>()->getElementType();
      if (element.kind() == TypeKind::TensorType) return Kind::tensor_list;
      if (element.kind() == TypeKind::NumberType) return Kind::scalar_list;
      if (element.kind() == TypeKind::OptionalType && kind_of(element) == Kind::tensor) {
        return Kind::optional_tensor_list;
      }
      return Kind::other;
    }
    default: return Kind::other;
  }
}

bool is_tensors(Kind kind) {
  return kind == Kind::tensor || kind == Kind::tensor_list || kind == Kind::optional_tensor_list;
}

bool writes(std::string_view op, const c10::Argument& argument) {
  if (argument.alias_info() != nullptr && argument.alias_info()->isWrite()) return true;
  return std::any_of(kHiddenWrites.begin(), kHiddenWrites.end(), [&](const HiddenWrite& hidden) {
    return hidden.op == op && hidden.argument == argument.name();
  });
}

}  // namespace

const Signature* read_signature(const c10::OperatorHandle& op) {
  auto signature = std::make_unique<Signature>(op);
  const c10::FunctionSchema& schema = op.schema();
  const std::string_view name = schema.name();
  signature->aten = name.starts_with("aten::");
  signature->foreach = is_foreach(name);
  bool generator = false;
  for (const c10::Argument& argument : schema.arguments()) {
    Parameter arg;
    arg.kind = kind_of(*argument.type());
    arg.written = is_tensors(arg.kind) && writes(name, argument);
    generator |= arg.kind == Kind::generator;
    signature->tensor_args |= is_tensors(arg.kind);
    signature->any_list |= arg.kind == Kind::tensor_list || arg.kind == Kind::optional_tensor_list;
    signature->any_written |= arg.written;
    if (signature->foreach && arg.kind == Kind::tensor && argument.name() == "scalars") {
      signature->scalars_arg = static_cast<int8_t>(signature->args.size());
    }
    if (argument.name() == "dropout_p" && argument.type()->kind() == TypeKind::FloatType) {
      signature->dropout_arg = static_cast<int8_t>(signature->args.size());
    }
    signature->args.push_back(arg);
  }
  signature->nrets = static_cast<uint8_t>(schema.returns().size());
  signature->shape_from_data = op.hasTag(at::Tag::dynamic_output_shape);
  signature->host_result = op.hasTag(at::Tag::data_dependent_output) || signature->shape_from_data;
  signature->numbers_alone = !schema.returns().empty();
  for (const c10::Argument& result : schema.returns()) {
    signature->is_view |= result.alias_info() != nullptr && !result.alias_info()->isWrite();
    signature->host_result |= !is_tensors(kind_of(*result.type()));
    signature->numbers_alone &= !is_tensors(kind_of(*result.type()));
    signature->fresh_results |= is_tensors(kind_of(*result.type())) && result.alias_info() == nullptr;
  }
  signature->pointwise = signature->aten && op.hasTag(at::Tag::pointwise) && name != "aten::clone" &&
                         !op.hasTag(at::Tag::nondeterministic_seeded);
  signature->metadata_write = op.hasTag(at::Tag::inplace_view);
  signature->draws = generator || op.hasTag(at::Tag::nondeterministic_seeded);
  signature->random_without_generator = !generator && op.hasTag(at::Tag::nondeterministic_seeded);
  signature->pure = is_pure(*signature, name);
  return signature.release();
}

namespace {

// Signatures by operator name. A library may be unloaded, and another may then define an operator of the same
// name.
class Signatures final : public c10::OpRegistrationListener {
 public:
  const Signature* find(const c10::OperatorHandle& op) {
    {
      std::shared_lock lock(mutex_);
      if (auto found = signatures_.find(op.operator_name()); found != signatures_.end()) return found->second;
    }
    const Signature* signature = read_signature(op);
    std::unique_lock lock(mutex_);
    return signatures_.emplace(op.operator_name(), signature).first->second;
  }

  const c10::RegistrationHandleRAII* listening = nullptr;  // Never destroyed.

 private:
  void onOperatorRegistered(const c10::OperatorHandle&) override {}
  void onOperatorDeregistered(const c10::OperatorHandle& op) override {
    std::unique_lock lock(mutex_);
    const auto found = signatures_.find(op.operator_name());
    if (found == signatures_.end()) return;
    gone_.push_back(found->second);
    signatures_.erase(found);
  }

  std::shared_mutex mutex_;
  std::unordered_map<c10::OperatorName, const Signature*> signatures_;
  std::vector<const Signature*> gone_;  // Kept: a call may still use one.
};

Signatures& signatures() {
  // Leaked: a fallback may run while static objects are destroyed.
  static Signatures& all = *[] {
    auto made = std::make_unique<Signatures>();
    Signatures* kept = made.get();
    kept->listening = new c10::RegistrationHandleRAII(
        c10::Dispatcher::singleton().addRegistrationListener(std::move(made)));
    return kept;
  }();
  return all;
}

}  // namespace

const Signature* signature_of(const c10::OperatorHandle& op) { return signatures().find(op); }

}  // namespace innkeeper::torch_layer
