// Operators that CUDA supports for a dtype that the host's kernels lack;
// tests/python/device/test_dtype_fallbacks.py finds them in PyTorch's tables of both. If the host or a
// simulated GPU computes, operands of that dtype are cast to a wider one, and results are cast back. CUDA's
// kernels compute in the wider dtype, too.
#include "torch/kernels/dtype_fallbacks.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "torch/kernels/custom_kernels.h"
#include "torch/kernels/host_kernels.h"
#include "torch/operator/fallback.h"
#include "torch/registry/boxed_kernel.h"

namespace innkeeper::torch_layer {
namespace {

using at::ScalarType;
using at::Tensor;

struct Row {
  std::string_view name;      // Name without namespace; covers in-place and out variants.
  std::string_view overload;  // Prefix of the overload names; empty: all.
  std::vector<ScalarType> lacking;
  ScalarType wide;
};

const std::vector<Row>& rows() {
  const std::vector<ScalarType> integers = {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong};
  const std::vector<ScalarType> halves = {at::kHalf, at::kBFloat16};
  static const auto& all = *new std::vector<Row>{
      {"_upsample_bilinear2d_aa", "", halves, at::kFloat},
      {"_upsample_bilinear2d_aa_backward", "", halves, at::kFloat},
      {"avg_pool3d", "", halves, at::kFloat},
      {"avg_pool3d_backward", "", halves, at::kFloat},
      {"histc", "", integers, at::kDouble},
      {"multi_margin_loss", "", halves, at::kFloat},
      {"multi_margin_loss_backward", "", halves, at::kFloat},
      {"multilabel_margin_loss_backward", "", halves, at::kFloat},
      {"multilabel_margin_loss_forward", "", halves, at::kFloat},
      {"round", "decimals", {at::kHalf}, at::kFloat},
      {"trace", "", {at::kBool}, at::kByte},
  };
  return all;
}

const Row* row_of(const c10::OperatorHandle& op) {
  std::string_view name = op.schema().name();
  if (!name.starts_with("aten::")) return nullptr;
  name.remove_prefix(6);
  if (name.ends_with('_')) name.remove_suffix(1);
  const auto found = std::find_if(rows().begin(), rows().end(), [&](const Row& row) {
    return row.name == name && op.schema().overload_name().starts_with(row.overload);
  });
  return found == rows().end() ? nullptr : &*found;
}

class DtypeFallback final : public c10::OperatorKernel {
 public:
  DtypeFallback(const Signature* signature, const Row& row) : op_(signature), row_(row) {}

  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) {
    if (runs_cuda_kernels() || is_mixed(torch::jit::last(*stack, op_.signature->args.size())))
      return run_managed(op_, stack);
    const at::AutoDispatchBelowADInplaceOrView below;  // The casts are not operators of the program.
    std::optional<ScalarType> narrow;
    std::vector<std::pair<Tensor, Tensor>> written;  // Pairs of a written operand and its wide copy.
    const size_t first = stack->size() - op_.signature->args.size();
    for (size_t i = first; i < stack->size(); ++i) {
      c10::IValue& value = (*stack)[i];
      if (!value.isTensor() || !is_lacking(value.toTensor())) continue;
      const Tensor given = value.toTensor();
      narrow = given.scalar_type();
      const Tensor wide = given.to(row_.wide);
      if (op_.signature->args[i - first].written) written.emplace_back(given, wide);
      value = wide;
    }
    run_managed(op_, stack);
    if (!narrow.has_value()) return;
    for (const auto& [given, wide] : written) {
      if (given.sizes() != wide.sizes()) given.resize_(wide.sizes());
      given.copy_(wide);
    }
    for (size_t i = first; i < stack->size(); ++i) {
      c10::IValue& value = (*stack)[i];
      if (value.isTensor()) value = narrowed(value.toTensor(), *narrow, written);
    }
  }

 private:
  bool is_lacking(const Tensor& x) const {
    return x.defined() && is_managed(x) &&
           std::find(row_.lacking.begin(), row_.lacking.end(), x.scalar_type()) != row_.lacking.end();
  }

  // Whether operands disagree in dtype: the kernel must refuse them with its own message, so they must not be
  // cast.
  bool is_mixed(c10::ArrayRef<c10::IValue> arguments) const {
    std::optional<ScalarType> narrow;
    bool wide = false;
    for (const c10::IValue& value : arguments) {
      if (!value.isTensor() || !value.toTensor().defined()) continue;
      const ScalarType type = value.toTensor().scalar_type();
      wide |= type == row_.wide;
      if (!is_lacking(value.toTensor())) continue;
      if (narrow.has_value() && *narrow != type) return true;
      narrow = type;
    }
    return wide && narrow.has_value();
  }

  Tensor narrowed(const Tensor& result, ScalarType narrow,
                  const std::vector<std::pair<Tensor, Tensor>>& written) const {
    for (const auto& [given, wide] : written)
      if (result.is_same(wide)) return given;
    return result.defined() && result.scalar_type() == row_.wide ? result.to(narrow) : result;
  }

  ManagedOp op_;
  const Row& row_;
};

}  // namespace

bool register_dtype_fallbacks(const c10::OperatorHandle& op) {
  const Row* const row = row_of(op);
  if (row == nullptr) return false;
  register_kernel(op, kManagedKey, std::make_unique<DtypeFallback>(read_signature(op), *row),
                  "innkeeper: managed device, in a wider dtype");
  return true;
}

}  // namespace innkeeper::torch_layer
