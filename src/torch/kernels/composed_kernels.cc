#include "torch/kernels/composed_kernels.h"

#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/quantized/QTensorImpl.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "torch/kernels/custom_kernels.h"
#include "torch/kernels/quantized.h"
#include "torch/memory/composed.h"
#include "torch/memory/device_index.h"
#include "torch/memory/handle.h"
#include "torch/operator/drive.h"
#include "torch/operator/mixed_devices.h"
#include "torch/operator/mixed_move.h"
#include "torch/random/random_stream.h"
#include "torch/registry/boxed_kernel.h"
#include "torch/registry/register_ops.h"

namespace innkeeper::torch_layer {
namespace {

using at::Tensor;
using c10::DispatchKey;

// Operators with dense operands and composed results, by name, because the schema does not tell.
constexpr std::array<std::string_view, 13> kComposes = {
    "aten::_make_per_channel_quantized_tensor",
    "aten::_make_per_tensor_quantized_tensor",
    "aten::_nested_from_padded",
    "aten::_nested_tensor_from_mask",
    "aten::_spdiags",
    "aten::_to_sparse",
    "aten::_to_sparse_bsc",
    "aten::_to_sparse_bsr",
    "aten::_to_sparse_csc",
    "aten::_to_sparse_csr",
    "aten::quantize_per_channel",
    "aten::quantize_per_tensor",
    "aten::quantize_per_tensor_dynamic",
};

// Replaces every tensor in an argument or a result by the result of `map`.
template <class Map>
void map_tensors(c10::IValue& value, Map map) {
  if (value.isTensor()) {
    value = map(value.toTensor());
  } else if (value.isTensorList()) {
    const auto list = value.toTensorList();
    c10::List<Tensor> mapped;
    for (size_t k = 0; k < list.size(); ++k) mapped.push_back(map(list.get(k)));
    value = std::move(mapped);
  } else if (value.isOptionalTensorList()) {
    const auto list = value.toOptionalTensorList();
    c10::List<std::optional<Tensor>> mapped;
    for (size_t k = 0; k < list.size(); ++k) {
      const std::optional<Tensor> element = list.get(k);
      mapped.push_back(element.has_value() ? std::optional<Tensor>(map(*element)) : element);
    }
    value = std::move(mapped);
  }
}

// One operator on the host, some of whose operands or results are composed.
class ComposedCall : public WholeAndOnce {
 public:
  ComposedCall(const ManagedOp& op, torch::jit::Stack& stack)
      : op_(op), signature_(*op.signature), stack_(stack), first_(stack.size() - signature_.args.size()) {}

  const std::string& name() const { return signature_.op.schema().name(); }

  void collect(OperatorCall& call) {
    refuse_mixed_devices(op_, torch::jit::last(stack_, signature_.args.size()));
    for (size_t i = 0; i < signature_.args.size(); ++i) {
      const bool written = signature_.args[i].written;
      map_tensors(stack_[first_ + i], [&](const Tensor& x) { return take(call, x, written); });
    }
    TORCH_CHECK_NOT_IMPLEMENTED(call.runtime().has_data(), name(),
                                " needs data, which INNKEEPER_SIM has off: ", why_data());
  }

  static NodeId node(const OperatorCall& call) { return call.runtime().engine().host(); }

  void compute(OperatorCall& call) {
    // Releases the composed real tensors on every exit, before the call looks for outside holders of its real
    // tensors.
    struct LetGo {
      ~LetGo() { lent.clear(); }
      std::vector<Lent>& lent;
    } let_go{lent_};
    for (size_t i = 0; i < signature_.args.size(); ++i)
      replace(call, stack_[first_ + i], signature_.args[i].kind);
    if (signature_.random_without_generator) {
      const DefaultGeneratorTurn turn(current_stream(call.index_or_current()), c10::kCPU);
      signature_.op.callBoxed(&stack_);
    } else {
      signature_.op.callBoxed(&stack_);
    }
    for (Lent& lent : lent_) settle(call, lent);
    for (size_t i = first_; i < stack_.size(); ++i) {
      map_tensors(stack_[i], [&](const Tensor& x) { return give_back(call, x); });
    }
  }

  void result() const {}

 private:
  // A composed operand; its parts are the call's operands from `first` on.
  struct Lent {
    Tensor managed;
    Tensor real;
    size_t first;
    bool written;
  };

  std::string_view why_data() const {
    const bool quantized =
        name().find("quantize") != std::string::npos ||
        std::any_of(lent_.begin(), lent_.end(), [](const Lent& lent) { return lent.managed.is_quantized(); });
    return quantized ? "the host computes with quantized tensors"
                     : "sizes of sparse and nested tensors depend on it";
  }

  const Tensor& take(OperatorCall& call, const Tensor& x, bool written) {
    if (!is_managed(x)) return x;
    requires_grad_ |= x.requires_grad();
    if (!is_composed(x)) {
      call.operand(x, written);
      return x;
    }
    lent_.push_back({x, Tensor(), call.operand_count(), written});
    for (Tensor& part : parts_of(x)) call.operand(std::move(part), written);
    return x;
  }

  void replace(OperatorCall& call, c10::IValue& value, Parameter::Kind kind) {
    map_tensors(value, [&](const Tensor& x) { return real(call, x); });
    if (kind == Parameter::Kind::device && value.isDevice() && value.toDevice().type() == kManagedType) {
      value = c10::Device(c10::kCPU);
    }
  }

  // The real tensor of an operand. Operands come in the order in which take() took them.
  Tensor real(OperatorCall& call, const Tensor& x) {
    if (!is_managed(x)) return x;
    if (!is_composed(x)) return call.real(next_operand_++);
    const size_t place = next_lent_++;
    Lent& lent = lent_[place];
    next_operand_ += parts_count(x);
    // Kernels compare identities of operands: sums and products of compressed sparse tensors do.
    const auto before = std::find_if(lent_.begin(), lent_.begin() + static_cast<std::ptrdiff_t>(place),
                                     [&](const Lent& other) { return other.managed.is_same(x); });
    if (&*before != &lent) {
      lent.real = before->real;
      lent.first = before->first;
      return lent.real;
    }
    lent.real = assemble(x, real_parts(call, lent));
    // _sparse_mm_reduce_impl decides by its operands whether to keep data for its backward pass.
    if (requires_grad_ && is_sparse(x)) lent.real.set_requires_grad(true);
    return lent.real;
  }

  static size_t parts_count(const Tensor& composed) {
    return !is_sparse(composed) ? 1 : composed.layout() == c10::kSparse ? 2 : 3;
  }

  static Parts real_parts(const OperatorCall& call, const Lent& lent) {
    Parts parts;
    for (size_t k = 0; k < parts_count(lent.managed); ++k) parts.push_back(call.real(lent.first + k));
    return parts;
  }

  // Takes over the parts or the shape that a kernel gave a sparse tensor that it wrote.
  static void settle(OperatorCall& call, const Lent& lent) {
    if (!lent.written || lent.managed.is_nested()) return;
    if (lent.managed.is_quantized()) return show_quantized(lent.managed, lent.real);
    const Parts before = real_parts(call, lent);
    const Parts after = parts_of(lent.real);
    const bool same = std::equal(before.begin(), before.end(), after.begin(),
                                 [](const Tensor& a, const Tensor& b) { return a.is_same(b); }) &&
                      lent.real.sizes() == lent.managed.sizes() && same_coalesced(lent.real, lent.managed);
    if (!same) set_parts(lent.managed, managed_parts(call, lent.real), lent.real);
  }

  static Parts managed_parts(OperatorCall& call, const Tensor& real) {
    Parts parts;
    for (const Tensor& part : parts_of(real)) parts.push_back(call.give_back(part));
    return parts;
  }

  Tensor give_back(OperatorCall& call, const Tensor& real) {
    if (!is_composed(real) || !real.device().is_cpu()) return call.give_back(real);
    for (const Lent& lent : lent_) {
      if (lent.real.is_same(real)) return lent.managed;
    }
    if (real.is_quantized() && !shares_quantizer(real)) own_quantizer(real);
    return call.give_back(real);
  }

  // Whether the result has an operand's quantizer; it may be a view of that operand.
  bool shares_quantizer(const Tensor& real) const {
    return std::any_of(lent_.begin(), lent_.end(), [&](const Lent& lent) {
      return lent.real.is_quantized() &&
             at::get_qtensorimpl(lent.real)->quantizer() == at::get_qtensorimpl(real)->quantizer();
    });
  }

  const ManagedOp& op_;
  const Signature& signature_;
  torch::jit::Stack& stack_;
  const size_t first_;
  std::vector<Lent> lent_;
  size_t next_operand_ = 0;
  size_t next_lent_ = 0;
  bool requires_grad_ = false;  // Some operand requires a gradient.
};

// Runs LibTorch's kernel for nested CPU tensors, for operators that only call operators on their buffers.
void run_by_parts(const ManagedOp& op, torch::jit::Stack* stack) {
  op.signature->op.redispatchBoxed(c10::DispatchKeySet(DispatchKey::NestedTensorCPU), stack);
}

template <BoxedFunction Run = &run_composed>
void register_unless_there(const c10::OperatorHandle& op, DispatchKey key) {
  if (op.hasKernelForDispatchKey(key)) return;
  register_boxed<Run>(op, key, "innkeeper: managed tensors made of others");
}

void register_nested(const c10::OperatorHandle& op) {
  const std::unique_ptr<const Signature> signature(read_signature(op));
  if (needs_own_kernel(*signature)) {
    register_unless_there<&run_by_parts>(op, DispatchKey::NestedTensorPrivateUse1);
  } else {
    register_unless_there(op, DispatchKey::NestedTensorPrivateUse1);
  }
}

}  // namespace

void run_composed(const ManagedOp& op, torch::jit::Stack* stack) {
  try {
    ComposedCall call(op, *stack);
    drive(call);
    return;
  } catch (const MixedOperands&) {
  }
  run_moved(op, stack, &run_composed);
}

// Registers a kernel for each operator with a kernel for composed CPU tensors, unless composed_parts.cc has
// one. All other operators decompose as on the CPU.
void register_composed_operators() {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (!name.name.starts_with("aten::")) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op.has_value()) continue;
    if (std::find(kComposes.begin(), kComposes.end(), name.name) != kComposes.end() &&
        op->hasKernelForDispatchKey(DispatchKey::CPU)) {
      register_unless_there(*op, kManagedKey);
    }
    if (op->hasKernelForDispatchKey(DispatchKey::SparseCPU)) {
      register_unless_there(*op, DispatchKey::SparsePrivateUse1);
    }
    if (op->hasKernelForDispatchKey(DispatchKey::SparseCsrCPU)) {
      register_unless_there(*op, DispatchKey::SparseCsrPrivateUse1);
    }
    if (op->hasKernelForDispatchKey(DispatchKey::QuantizedCPU)) {
      register_unless_there(*op, DispatchKey::QuantizedPrivateUse1);
    }
    if (op->hasKernelForDispatchKey(DispatchKey::NestedTensorCPU)) register_nested(*op);
  }
  for (const DispatchKey key : {DispatchKey::SparsePrivateUse1, DispatchKey::SparseCsrPrivateUse1,
                                DispatchKey::NestedTensorPrivateUse1, DispatchKey::QuantizedPrivateUse1}) {
    kernels_for("_", key).fallback(
        torch::CppFunction::makeFromBoxedFunction<&boxed_fallback<&run_composed>>());
  }
}

}  // namespace innkeeper::torch_layer
