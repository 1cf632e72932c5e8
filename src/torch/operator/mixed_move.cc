#include "torch/operator/mixed_move.h"

#include <ATen/ATen.h>
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>

#include <atomic>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "torch/errors.h"
#include "torch/memory/device_index.h"
#include "torch/memory/handle.h"
#include "torch/memory/moved_copies.h"
#include "torch/operator/cpu_gradient.h"
#include "torch/operator/fallback.h"
#include "torch/registry/unseen.h"

namespace innkeeper::torch_layer {
namespace {

using at::Tensor;
using Kind = Parameter::Kind;

constexpr const char* kVariable = "INNKEEPER_MIXED";

std::atomic<int64_t> moved_bytes{0};

Result<bool> mixed_setting_of_environment() {
  const char* text = std::getenv(kVariable);
  const std::string_view said = text == nullptr ? "" : text;
  if (said.empty() || said == "move") return true;
  if (said == "refuse") return false;
  return Status(Code::invalid_argument,
                std::string(kVariable) + ": \"" + std::string(said) + "\" is neither move nor refuse");
}

std::atomic<bool>& mixed_setting() {
  static std::atomic<bool> moves{[] {
    const Result<bool> said = mixed_setting_of_environment();
    return said.ok() ? said.value() : true;
  }()};
  return moves;
}

MixedNotice& notice() {
  static auto& it = *new MixedNotice;
  return it;
}

// Bytes of a strided tensor; 0 for tensors of other layouts, which have no bytes of their own.
Bytes bytes_of(const Tensor& x) {
  return Bytes(x.layout() == c10::kStrided ? static_cast<int64_t>(x.nbytes()) : 0);
}

// Sizes of a tensor. For a nested tensor, the number of its tensors, because their sizes differ.
std::vector<int64_t> sizes_of(const Tensor& x) {
  if (x.is_nested()) return {x._nested_tensor_size().size(0)};
  return x.sizes().vec();
}

void count_moved(const Tensor& x) { moved_bytes.fetch_add(bytes_of(x).count(), std::memory_order_relaxed); }

// The operands of one call, with the CPU operands moved.
class MovedOperands {
 public:
  MovedOperands(const ManagedOp& op, torch::jit::Stack& stack)
      : op_(op), signature_(*op.signature), stack_(stack), first_(stack.size() - signature_.args.size()) {
    index_ = index_of_first_managed();
    for (size_t i = 0; i < signature_.args.size(); ++i) {
      if (is_left_alone(i)) continue;
      move(stack_[first_ + i], signature_.args[i]);
    }
  }

  // After the operator: copies written operands back to the CPU, and puts the program's own tensors into the
  // results.
  void give_back() {
    for (const Written& each : written_) {
      if (!each.original.is_nested() && each.original.sizes() != each.moved.sizes())
        each.original.resize_(each.moved.sizes());
      each.original.copy_(each.moved);
      count_moved(each.moved);
    }
    for (size_t i = first_; i < stack_.size(); ++i) {
      if (gradients_ && stack_[i].isTensorList())
        for (const Tensor& result : stack_[i].toTensorVector()) move_gradients_of(result);
      if (!stack_[i].isTensor()) continue;
      for (const Written& each : written_)
        if (stack_[i].toTensor().is_same(each.moved)) stack_[i] = each.original;
      if (gradients_ && stack_[i].toTensor().defined()) move_gradients_of(stack_[i].toTensor());
    }
  }

 private:
  struct Written {
    Tensor original;
    Tensor moved;
  };

  // CUDA takes these operands from the CPU, too. An operand whose gradient must be moved is not left alone.
  bool is_left_alone(size_t i) const {
    if (static_cast<int>(i) == signature_.scalars_arg) return true;
    if (!op_.takes_cpu_operands || i == 0) return false;
    const c10::IValue& value = stack_[first_ + i];
    return !value.isTensor() || !value.toTensor().defined() || !value.toTensor().requires_grad();
  }

  c10::DeviceIndex index_of_first_managed() const {
    std::optional<c10::DeviceIndex> index;
    const auto look = [&](const c10::IValue& value) {
      if (!index.has_value() && value.isTensor() && is_managed(value.toTensor()))
        index = value.toTensor().device().index();
    };
    for (size_t i = first_; i < stack_.size(); ++i) {
      look(stack_[i]);
      if (stack_[i].isTensorList() || stack_[i].isOptionalTensorList())
        for (const c10::IValue& element : stack_[i].toListRef()) look(element);
    }
    return index.value_or(current_index());
  }

  void move(c10::IValue& value, const Parameter& parameter) {
    if (parameter.kind == Kind::tensor) {
      if (value.isTensor()) value = moved(value.toTensor(), parameter.written);
    } else if (parameter.kind == Kind::tensor_list && value.isTensorList()) {
      const auto list = value.toTensorList();
      c10::List<Tensor> all;
      for (size_t k = 0; k < list.size(); ++k) all.push_back(moved(list.get(k), parameter.written));
      value = std::move(all);
    } else if (parameter.kind == Kind::optional_tensor_list && value.isOptionalTensorList()) {
      const auto list = value.toOptionalTensorList();
      c10::List<std::optional<Tensor>> all;
      for (size_t k = 0; k < list.size(); ++k) {
        const std::optional<Tensor> element = list.get(k);
        all.push_back(element.has_value() ? moved(*element, parameter.written) : element);
      }
      value = std::move(all);
    }
  }

  Tensor moved(const Tensor& tensor, bool written) {
    if (!tensor.defined()) return tensor;
    // A backward formula may keep a gradient that it makes from the CPU operands on the CPU, for example one
    // that writes in place.
    if (is_managed(tensor)) gradients_ |= expect_gradient_from(tensor, c10::kCPU);
    if (!tensor.device().is_cpu() || (tensor.dim() == 0 && !written)) return tensor;
    gradients_ |= expect_gradient_from(tensor, device_at(index_));
    const auto move = [&] {
      const Unseen unseen;
      return note_and_move(signature_.op.schema().name(), tensor, device_at(index_));
    };
    if (!written) return moved_copy(tensor, device_at(index_), move);
    return written_.emplace_back(Written{tensor, move()}).moved;
  }

  const ManagedOp& op_;
  const Signature& signature_;
  torch::jit::Stack& stack_;
  const size_t first_;
  c10::DeviceIndex index_ = 0;
  bool gradients_ = false;  // Some operand's gradient must be moved to the operand's device.
  std::vector<Written> written_;
};

}  // namespace

bool moves_cpu_tensors() { return mixed_setting().load(std::memory_order_relaxed); }
void set_moves_cpu_tensors(bool moves) { mixed_setting().store(moves, std::memory_order_relaxed); }
void check_mixed_setting() { throw_if_error(mixed_setting_of_environment().status(), ""); }

void run_moved(const ManagedOp& op, torch::jit::Stack* stack,
               void (*run)(const ManagedOp&, torch::jit::Stack*)) {
  MovedOperands operands(op, *stack);
  run(op, stack);
  operands.give_back();
}

at::Tensor note_and_move(std::string_view op, const at::Tensor& cpu_tensor, c10::Device device) {
  if (const MixedNotice& tell = notice()) tell(op, sizes_of(cpu_tensor), bytes_of(cpu_tensor));
  count_moved(cpu_tensor);
  return cpu_tensor.to(device);
}

int64_t bytes_moved_from_cpu() { return moved_bytes.load(std::memory_order_relaxed); }
void reset_bytes_moved_from_cpu() { moved_bytes.store(0, std::memory_order_relaxed); }
void set_mixed_notice(MixedNotice tell) { notice() = std::move(tell); }

}  // namespace innkeeper::torch_layer
