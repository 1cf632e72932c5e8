// Runs element-wise operators on tensors that are larger than every accelerator slice by slice. The bytes
// stay on the host. One slice of each operand at a time is copied to a tensor of its own, and the operator
// runs on these tensors.
//
// On a GPU an element's bits do not depend on its position. There operators are cut along the outermost
// dimension of operands that are dense in it. A slice has the strides of the whole tensor, so kernels choose
// the same code path for it.
//
// CPU kernels, which simulated accelerators run, compute whole vectors. They compute the remainder at the end
// of a thread's part by another formula, whose bits may differ. There slices are cut so that each element is
// computed as in the whole tensor. TensorIterator gives each of T threads ceil(n / T) elements of memory in
// order. Each such part is cut at multiples of a vector, into pieces that T threads divide at such multiples
// again, or that one thread computes. That requires operands in row-major order, because kernels may ask for
// it (gelu's do), and enough elements that all threads are sure to get some. Other operators are not cut: the
// host computes them whole.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/NativeFunctions.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "torch/memory/device_index.h"
#include "torch/memory/handle.h"
#include "torch/operator/fallback.h"
#include "torch/operator/meta_results.h"
#include "torch/operator/slices.h"
#include "torch/operator/soft_placement.h"
#include "torch/process/runtime_state.h"

namespace innkeeper::torch_layer {
namespace {

using Kind = Parameter::Kind;
using at::Tensor;

// Operands and result of one slice take at most 1/kPartOfBudget of the accelerator's budget.
constexpr int64_t kPartOfBudget = 6;

// Elements; a multiple of the width of every vector kernel.
constexpr int64_t kVector = 64;
// Grain sizes of ATen's kernels, in elements: a kernel with at most one grain of elements uses one thread.
// Each kernel's own grain lies between these two.
constexpr int64_t kLeastGrain = 2048;
constexpr int64_t kMostGrain = 32768;
// Elements; no kernel divides this number among several threads.
constexpr int64_t kAlone = kLeastGrain / 2;

// Half-open range of elements.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

// Number of threads, of at most `threads`, among which a kernel divides its elements: the least and the most
// that kernels use.
struct Parting {
  int64_t least = 1;
  int64_t most = 1;
};
Parting parting(int64_t elements, int64_t threads) {
  const auto with_grain = [&](int64_t grain) {
    return elements < grain ? 1 : std::min(threads, (elements + grain - 1) / grain);
  };
  return {with_grain(kMostGrain), with_grain(kLeastGrain)};
}

// Whether kernels with any of these thread numbers compute all elements in whole vectors.
bool is_in_vectors(int64_t elements, int64_t threads) {
  const Parting parts = parting(elements, threads);
  for (int64_t count = parts.least; count <= parts.most; ++count) {
    if (elements % (kVector * count) != 0) return false;
  }
  return elements != 0;
}

// Number of elements that most numbers of threads, or at least `threads` of them, divide into whole vectors.
int64_t unit(int64_t threads) {
  int64_t common = 1;
  for (int64_t count = 2; count <= threads && common < kVector; ++count) common = std::lcm(common, count);
  return kVector * (common < kVector ? common : threads);
}

// [0, whole) in pieces of at most `most` elements. `threads` CPU threads compute each element of a piece in a
// vector, or outside of one, as in the whole. Empty if that is impossible.
std::vector<Range> as_threads_compute(int64_t whole, int64_t most, int64_t threads) {
  const auto [parts, at_most] = parting(whole, threads);
  most = most / unit(threads) * unit(threads);
  if (parts != at_most || !is_in_vectors(most, threads)) return {};
  std::vector<Range> pieces;
  const int64_t part = (whole + parts - 1) / parts;
  for (int64_t begin = 0; begin < whole; begin += part) {
    const int64_t end = std::min(begin + part, whole);
    for (int64_t at = begin; at < end;) {
      int64_t size = std::min(most, (end - at) / unit(threads) * unit(threads));
      if (!is_in_vectors(size, threads)) size = std::min(kAlone, end - at);
      pieces.push_back({at, at + size});
      at += size;
    }
  }
  return pieces;
}

Tensor shown_as(const Tensor& whole, c10::IntArrayRef sizes, int64_t offset) {
  return at::native::as_strided_tensorimpl(whole, sizes, whole.strides(), offset);
}

// The range [begin, end) of a dimension, as a view.
Tensor rows_of(const Tensor& whole, int64_t dimension, int64_t begin, int64_t end) {
  auto sizes = whole.sizes().vec();
  sizes[static_cast<size_t>(dimension)] = end - begin;
  return shown_as(whole, sizes, whole.storage_offset() + begin * whole.stride(dimension));
}

// A new tensor on the current managed device, which is that of the operands, with the sizes and strides of
// `like`.
Tensor fresh(const Tensor& like) {
  return at::empty_strided(like.sizes(), like.strides(), like.options().device(device_at(current_index())));
}

bool is_outermost(const Tensor& tensor, int64_t dimension) {
  return tensor.is_non_overlapping_and_dense() &&
         tensor.stride(dimension) * tensor.size(dimension) == tensor.numel();
}

// An operator's arguments, cut along one dimension of the shape to which they broadcast, or in the order of
// their memory.
class Cut {
 public:
  // `cpu_kernels`: CPU kernels compute the slices.
  Cut(const Signature& signature, c10::ArrayRef<c10::IValue> arguments, bool cpu_kernels)
      : signature_(signature), arguments_(arguments.begin(), arguments.end()), flat_(cpu_kernels) {}

  // False if the operator cannot be cut.
  bool prepare(Bytes slice) {
    if (signature_.nrets != 1) return false;
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (signature_.args[i].kind == Kind::tensor_list ||
          signature_.args[i].kind == Kind::optional_tensor_list)
        return false;
      if (!has_tensor(i)) continue;
      const Tensor& tensor = arguments_[i].toTensor();
      if (tensor.layout() != c10::kStrided) return false;
      if (signature_.args[i].written && std::exchange(written_, static_cast<int>(i)) >= 0) return false;
      if (!signature_.op.schema().arguments()[i].is_out()) shape_ = at::infer_size(shape_, tensor.sizes());
    }
    if (written_ < 0) {
      std::vector<Tensor> results = meta_results(signature_, arguments_);
      if (results.size() != 1) return false;
      result_ = fresh(results.front());
    } else {
      result_ = tensor_at(written_);
      // A result that must be resized, or that may not be written: the whole operator resizes it, or reports
      // the error.
      if (result_.sizes() != c10::IntArrayRef(shape_) || is_overlapping()) return false;
    }
    const bool cut = flat_ ? find_memory(slice) : find_dimension() && find_rows(slice);
    return cut && copy_small_parts(slice);
  }

  // The tensor that the operator writes: a new tensor, or its `out` or in-place argument.
  const Tensor& result() const { return result_; }
  const std::vector<Range>& ranges() const { return ranges_; }

  Tensor part_of(const Tensor& whole, Range range) const {
    if (!flat_) return rows_of(whole, dimension_in(whole), range.begin, range.end);
    const int64_t size = range.end - range.begin, stride = 1;
    return at::native::as_strided_tensorimpl(whole, size, stride, whole.storage_offset() + range.begin);
  }

  // The arguments for a slice: copies of their parts.
  torch::jit::Stack slice(Range range) const {
    torch::jit::Stack some;
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (!is_cut(i)) {
        some.push_back(arguments_[i]);
        continue;
      }
      const Tensor part = part_of(arguments_[i].toTensor(), range);
      const Tensor copied = fresh(part);
      copied.copy_(part);
      some.emplace_back(copied);
    }
    return some;
  }

 private:
  bool has_tensor(size_t i) const {
    return signature_.args[i].kind == Kind::tensor && arguments_[i].isTensor() &&
           arguments_[i].toTensor().defined();
  }

  bool is_cut(size_t i) const {
    if (!has_tensor(i)) return false;
    const Tensor& tensor = arguments_[i].toTensor();
    if (!is_managed(tensor)) return false;
    if (flat_) return tensor.numel() != 1;
    return dimension_in(tensor) >= 0 && tensor.size(dimension_in(tensor)) == extent();
  }

  // Whether an operand shares some, but not exactly all, of the bytes that the operator writes.
  bool is_overlapping() const {
    if (!result_.is_non_overlapping_and_dense()) return true;
    const auto begin = [](const Tensor& x) { return x.storage_offset() * x.element_size(); };
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (!has_tensor(i) || static_cast<int>(i) == written_) continue;
      const Tensor& other = arguments_[i].toTensor();
      if (!is_managed(other) || block_of(other) != block_of(result_)) continue;
      const bool same = begin(other) == begin(result_) && other.sizes() == result_.sizes() &&
                        other.strides() == result_.strides() && other.dtype() == result_.dtype();
      if (!same) return true;
    }
    return false;
  }

  // Cuts in the order of memory. All cut operands must be in row-major order like the result; numbers stay
  // whole.
  bool find_memory(Bytes slice) {
    if (!result_.is_contiguous() || result_.sizes() != c10::IntArrayRef(shape_)) return false;
    int64_t element = 0;
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (arguments_[i].isInt() && signature_.op.schema().arguments()[i].name() == "memory_format")
        return false;
      if (!is_cut(i)) continue;
      const Tensor& tensor = arguments_[i].toTensor();
      if (tensor.sizes() != result_.sizes() || tensor.strides() != result_.strides()) return false;
      element += tensor.element_size();
    }
    if (element == 0) return false;
    ranges_ = as_threads_compute(result_.numel(), slice.count() / element, at::get_num_threads());
    return !ranges_.empty();
  }

  int64_t extent() const { return shape_[dimension_]; }
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
    const int64_t rows = row == 0 ? 0 : std::min(slice.count() / row, extent());
    if (rows == 0) return false;
    for (int64_t begin = 0; begin < extent(); begin += rows)
      ranges_.push_back({begin, std::min(begin + rows, extent())});
    return true;
  }

  const Tensor& tensor_at(int i) const { return arguments_[static_cast<size_t>(i)].toTensor(); }

  // An operand that every slice needs whole may be a view of a large block; a small copy replaces it.
  bool copy_small_parts(Bytes slice) {
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (!has_tensor(i) || is_cut(i)) continue;
      const Tensor& tensor = arguments_[i].toTensor();
      if (!is_managed(tensor) || block_of(tensor)->size() <= slice) continue;
      if (!tensor.is_non_overlapping_and_dense() || Bytes(static_cast<int64_t>(tensor.nbytes())) > slice)
        return false;
      const Tensor copied = fresh(tensor);
      copied.copy_(tensor);
      arguments_[i] = copied;
    }
    return true;
  }

  const Signature& signature_;
  std::vector<c10::IValue> arguments_;
  std::vector<int64_t> shape_;
  int written_ = -1;
  Tensor result_;
  const bool flat_;  // Cut in the order of memory.
  size_t dimension_ = 0;
  std::vector<Range> ranges_;  // Ranges of memory's elements if flat_, else of the dimension.
};

// The device index of the first managed operand; -1 if there is none.
c10::DeviceIndex index_of_operands(c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& value : arguments)
    if (value.isTensor() && is_managed(value.toTensor())) return value.toTensor().device().index();
  return -1;
}

}  // namespace

bool run_in_slices(const ManagedOp& op, torch::jit::Stack* stack) {
  const Signature& signature = *op.signature;
  Runtime& runtime = torch_layer::runtime();
  if (!is_soft() || !runtime.has_data()) return false;
  Engine& engine = runtime.engine();
  // The largest accelerator sets the size of a slice, which may be too large for the others.
  const std::vector<NodeId>& nodes = engine.computing_nodes();
  const NodeId node = *std::max_element(
      nodes.begin(), nodes.end(), [&](NodeId a, NodeId b) { return engine.budget(a) < engine.budget(b); });
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const AtIndex at(index_of_operands(torch::jit::last(*stack, signature.args.size())));
  Cut cut(signature, torch::jit::last(*stack, signature.args.size()),
          runtime.backend(node).kernel_key == c10::DispatchKey::CPU);
  if (!cut.prepare(Bytes(engine.budget(node).count() / kPartOfBudget))) return false;
  for (const Range range : cut.ranges()) {
    torch::jit::Stack some = cut.slice(range);
    run_managed(op, &some);
    cut.part_of(cut.result(), range).copy_(some.back().toTensor());
  }
  torch::jit::drop(*stack, signature.args.size());
  stack->emplace_back(cut.result());
  return true;
}

}  // namespace innkeeper::torch_layer
