// Element-wise operators on tensors that are larger than every accelerator, slice by slice: the bytes stay on
// the host, a slice of each operand at a time is copied to a tensor of its own and computed where such
// tensors are. So the bits are those of an accelerator.
//
// Cut along the outermost dimension of operands that are dense in it: a slice has the strides of the whole,
// and kernels take the way they take there.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/NativeFunctions.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "torch/copy.h"
#include "torch/fallback.h"
#include "torch/handle.h"
#include "torch/meta_results.h"
#include "torch/runtime_state.h"
#include "torch/soft_placement.h"

namespace innkeeper::torch_layer {
namespace {

using Kind = ArgPlan::Kind;
using at::Tensor;

// A slice's operands and result take at most this part of the smallest accelerator.
constexpr int64_t kPartOfBudget = 6;

Tensor shown_as(const Tensor& whole, c10::IntArrayRef sizes, int64_t offset) {
  return at::native::as_strided_tensorimpl(whole, sizes, whole.strides(), offset);
}

// The part [begin, end) of a dimension, as a view.
Tensor rows_of(const Tensor& whole, int64_t dimension, int64_t begin, int64_t end) {
  auto sizes = whole.sizes().vec();
  sizes[static_cast<size_t>(dimension)] = end - begin;
  return shown_as(whole, sizes, whole.storage_offset() + begin * whole.stride(dimension));
}

// `like` on the managed device: same sizes and strides, other memory.
Tensor fresh(const Tensor& like) {
  return at::empty_strided(like.sizes(), like.strides(), like.options().device(managed_device()));
}

bool is_outermost(const Tensor& tensor, int64_t dimension) {
  return tensor.is_non_overlapping_and_dense() &&
         tensor.stride(dimension) * tensor.size(dimension) == tensor.numel();
}

// An operator's arguments, cut along one dimension of the shape that they broadcast to.
class Cut {
 public:
  Cut(const OpPlan& plan, c10::ArrayRef<c10::IValue> arguments)
      : plan_(plan), arguments_(arguments.begin(), arguments.end()) {}

  // False where the operator cannot be cut.
  bool prepare(Bytes slice) {
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (plan_.args[i].kind == Kind::tensor_list || plan_.args[i].kind == Kind::optional_tensor_list)
        return false;
      if (plan_.args[i].kind != Kind::tensor || !arguments_[i].isTensor()) continue;
      const Tensor& tensor = arguments_[i].toTensor();
      if (!tensor.defined()) continue;
      if (tensor.layout() != c10::kStrided) return false;
      if (plan_.args[i].written && std::exchange(written_, static_cast<int>(i)) >= 0) return false;
      shape_ = at::infer_size(shape_, tensor.sizes());
    }
    if (written_ >= 0 && tensor_at(written_).sizes() != c10::IntArrayRef(shape_)) return false;
    if (plan_.nrets != 1) return false;
    if (written_ < 0) {
      std::vector<Tensor> results = meta_results(plan_, arguments_);
      if (results.size() != 1) return false;
      result_ = fresh(results.front());
    } else {
      result_ = tensor_at(written_);
    }
    return find_dimension() && find_rows(slice) && copy_small_parts(slice);
  }

  // Where the operator writes: a new tensor, or the one that it was given for that.
  const Tensor& result() const { return result_; }
  int64_t extent() const { return shape_[dimension_]; }
  int64_t rows() const { return rows_; }

  Tensor part_of(const Tensor& whole, int64_t begin) const {
    return rows_of(whole, dimension_in(whole), begin, std::min(begin + rows_, extent()));
  }

  // The arguments for the slice from `begin` on: copies of their parts.
  torch::jit::Stack slice(int64_t begin) const {
    torch::jit::Stack some;
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (!is_cut(i)) {
        some.push_back(arguments_[i]);
        continue;
      }
      const Tensor part = part_of(arguments_[i].toTensor(), begin);
      const Tensor copied = fresh(part);
      copy_from(part, copied, /*non_blocking=*/false);
      some.emplace_back(copied);
    }
    return some;
  }

 private:
  bool is_cut(size_t i) const {
    if (plan_.args[i].kind != Kind::tensor || !arguments_[i].isTensor()) return false;
    const Tensor& tensor = arguments_[i].toTensor();
    return tensor.defined() && is_managed(tensor) && dimension_in(tensor) >= 0 &&
           tensor.size(dimension_in(tensor)) == extent();
  }

  // Broadcasting counts dimensions from the last.
  int64_t dimension_in(const Tensor& tensor) const {
    return static_cast<int64_t>(dimension_) + tensor.dim() - static_cast<int64_t>(shape_.size());
  }

  bool find_dimension() {
    for (dimension_ = 0; dimension_ < shape_.size(); ++dimension_) {
      if (extent() < 2) continue;
      bool good = true;
      for (size_t i = 0; i < arguments_.size(); ++i) {
        if (is_cut(i)) good &= is_outermost(arguments_[i].toTensor(), dimension_in(arguments_[i].toTensor()));
      }
      if (good) return true;
    }
    return false;
  }

  bool find_rows(Bytes slice) {
    int64_t row = 0;
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (is_cut(i)) row += static_cast<int64_t>(arguments_[i].toTensor().nbytes()) / extent();
    }
    rows_ = row == 0 ? 0 : std::min(slice.count() / row, extent());
    return rows_ > 0;
  }

  const Tensor& tensor_at(int i) const { return arguments_[static_cast<size_t>(i)].toTensor(); }

  // What every slice is computed with may be a view of something large.
  bool copy_small_parts(Bytes slice) {
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (plan_.args[i].kind != Kind::tensor || !arguments_[i].isTensor() || is_cut(i)) continue;
      const Tensor& tensor = arguments_[i].toTensor();
      if (!is_managed(tensor) || block_of(tensor)->size() <= slice) continue;
      if (!tensor.is_non_overlapping_and_dense() || Bytes(static_cast<int64_t>(tensor.nbytes())) > slice)
        return false;
      const Tensor copied = fresh(tensor);
      copy_from(tensor, copied, /*non_blocking=*/false);
      arguments_[i] = copied;
    }
    return true;
  }

  const OpPlan& plan_;
  std::vector<c10::IValue> arguments_;
  std::vector<int64_t> shape_;
  int written_ = -1;
  Tensor result_;
  size_t dimension_ = 0;
  int64_t rows_ = 0;
};

}  // namespace

bool run_in_slices(const ManagedOp& op, torch::jit::Stack* stack) {
  const OpPlan& plan = *op.plan;
  Runtime& runtime = torch_layer::runtime();
  if (!is_soft() || !runtime.has_data()) return false;
  Engine& engine = runtime.engine();
  Bytes smallest = engine.budget(engine.computing_nodes().front());
  for (const NodeId node : engine.computing_nodes()) smallest = std::min(smallest, engine.budget(node));
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  Cut cut(plan, torch::jit::last(*stack, plan.args.size()));
  if (!cut.prepare(Bytes(smallest.count() / kPartOfBudget))) return false;
  for (int64_t begin = 0; begin < cut.extent(); begin += cut.rows()) {
    torch::jit::Stack some = cut.slice(begin);
    run_managed(op, &some);
    copy_from(some.back().toTensor(), cut.part_of(cut.result(), begin), /*non_blocking=*/false);
  }
  torch::jit::drop(*stack, plan.args.size());
  stack->emplace_back(cut.result());
  return true;
}

}  // namespace innkeeper::torch_layer
