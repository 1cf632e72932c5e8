// Mixed precision on the managed device: torch.autocast("managed") casts as torch.autocast("cuda") does, by
// PyTorch's own lists. The lower precision is float16 unless the program chooses another one, as on CUDA.
#include <ATen/autocast_mode.h>

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "torch/compat.h"
#include "torch/kernels/custom_kernels.h"
#include "torch/memory/moved_copies.h"
#include "torch/operator/mixed_move.h"

namespace innkeeper::torch_layer {
namespace {

at::Tensor binary_cross_entropy_is_unsafe(const at::Tensor&, const at::Tensor&,
                                          const std::optional<at::Tensor>&, int64_t) {
  TORCH_CHECK(
      false,
      "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast. Many models use "
      "a "
      "sigmoid right before them; combine the two in torch.nn.functional.binary_cross_entropy_with_logits or "
      "torch.nn.BCEWithLogitsLoss, which are safe.");
}

// PyTorch's lists use these names without their namespace.
using at::IntArrayRef;
using at::Scalar;
using at::ScalarType;
using at::Tensor;

#define FOR_ALL_RNNS(_) \
  _(lstm, input) \
  _(lstm, data) \
  _(gru, input) \
  _(gru, data) \
  _(rnn_tanh, input) \
  _(rnn_tanh, data) \
  _(rnn_relu, input) \
  _(rnn_relu, data)

// The operands of one operator. A cast applies only to operands on the device. CPU tensors beside managed
// ones are moved first, as operators move them anyway (mixed_move.h); a cast after the move would give
// another result.
class CastOperands {
 public:
  explicit CastOperands(std::string_view op) : op_(op) {}

  template <class... Args>
  bool are_mixed(const Args&... args) {
    (look_at(args), ...);
    return on_cpu_ && device_.has_value() && moves_cpu_tensors();
  }

  template <class T>
  decltype(auto) moved(T&& argument) const {
    using Argument = std::decay_t<T>;
    if constexpr (std::is_same_v<Argument, Tensor>) {
      if (!moves_beside_managed(argument)) return Tensor(argument);
      const auto move = [&] { return note_and_move(op_, argument, *device_); };
      return argument.requires_grad() ? move() : moved_copy(argument, *device_, move);
    } else if constexpr (std::is_same_v<Argument, std::optional<Tensor>>) {
      return argument ? std::optional<Tensor>(moved(*argument)) : argument;
    } else if constexpr (std::is_same_v<Argument, at::TensorList> ||
                         std::is_same_v<Argument, at::ITensorListRef>) {
      std::vector<Tensor> list;
      for (const Tensor& x : argument) list.push_back(moved(x));
      return list;
    } else {
      return std::forward<T>(argument);
    }
  }

 private:
  template <class T>
  void look_at(const T& argument) {
    if constexpr (std::is_same_v<T, Tensor>) {
      on_cpu_ |= moves_beside_managed(argument);
      if (!device_ && argument.defined() && is_managed(argument)) device_ = argument.device();
    } else if constexpr (std::is_same_v<T, std::optional<Tensor>>) {
      if (argument) look_at(*argument);
    } else if constexpr (std::is_same_v<T, at::TensorList> || std::is_same_v<T, at::ITensorListRef>) {
      for (const Tensor& x : argument) look_at(x);
    }
  }

  std::string_view op_;
  std::optional<c10::Device> device_;
  bool on_cpu_ = false;
};

// The object `m` of PyTorch's macros: registers their kernels so that the move runs first.
class MovingLibrary {
 public:
  explicit MovingLibrary(torch::Library& library) : library_(library) {}

  template <class Name, class Result, class... Args>
  void impl(Name name, Result (*cast_and_call)(Args...)) {
    library_.impl(name, [op = static_cast<const char*>(name), cast_and_call](Args... args) -> Result {
      CastOperands operands(op);
      if (!operands.are_mixed(args...)) [[likely]] {
        return cast_and_call(std::forward<Args>(args)...);
      }
      return cast_and_call(operands.moved(std::forward<Args>(args))...);
    });
  }

 private:
  torch::Library& library_;
};

}  // namespace

void register_autocast() {
  constexpr c10::DispatchKey kKey = c10::DispatchKey::AutocastPrivateUse1;
  kernels_for("_", kKey).fallback(torch::CppFunction::makeFallthrough());
  torch::Library& library = kernels_for("aten", kKey);
  MovingLibrary m(library);
#define LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(LOWER_PRECISION)
  // On CUDA these are cuDNN's _cudnn_rnn, which is cast as a whole.
  FOR_ALL_RNNS(LOWER_PRECISION)
#undef LOWER_PRECISION
#define FLOAT32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(FLOAT32)
#undef FLOAT32
#define FLOAT32_RESULT(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(FLOAT32_RESULT)
#undef FLOAT32_RESULT
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
#define PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(PROMOTE)
#undef PROMOTE
  library.impl("binary_cross_entropy", binary_cross_entropy_is_unsafe);
}

}  // namespace innkeeper::torch_layer
