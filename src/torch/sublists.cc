// Element-by-element operators over lists (_foreach_*, fused optimizers) in sub-lists whose operands fit the
// room. Each element is written exactly once and its bits are the same, however the list is cut (decision 2,
// I9).
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <vector>

#include "torch/fallback.h"
#include "torch/handle.h"
#include "torch/runtime_state.h"

namespace innkeeper::torch_layer {
namespace {

using Kind = ArgPlan::Kind;

// Operands of one sub-list take at most this part of the room: the rest is for what the kernel returns and
// for what other threads pin meanwhile.
constexpr int64_t kPartOfRoom = 3;

Bytes bytes_of(const at::Tensor& tensor) { return is_managed(tensor) ? block_of(tensor)->size() : Bytes(0); }

bool is_tensor_list(const ArgPlan& arg, const c10::IValue& value) {
  return arg.kind == Kind::tensor_list && value.isTensorList();
}

// The part [begin, end) of a list argument; other arguments, and lists of another length, stay whole.
c10::IValue part(const ArgPlan& arg, const c10::IValue& value, size_t length, size_t begin, size_t end) {
  if (is_tensor_list(arg, value)) {
    const auto list = value.toTensorList();
    if (list.size() != length) return value;
    c10::List<at::Tensor> some;
    some.reserve(end - begin);
    for (size_t k = begin; k < end; ++k) some.push_back(list.get(k));
    return some;
  }
  if (arg.kind == Kind::scalar_list && value.isList()) {
    const auto list = value.toListRef();
    if (list.size() != length) return value;
    c10::impl::GenericList some(value.toList().elementType());
    for (size_t k = begin; k < end; ++k) some.push_back(list[k]);
    return some;
  }
  return value;
}

}  // namespace

bool run_in_sublists(const ManagedOp& op, torch::jit::Stack* stack) {
  const OpPlan& plan = *op.plan;
  const size_t first = stack->size() - plan.args.size();
  size_t length = 0;
  for (size_t i = 0; i < plan.args.size(); ++i) {
    if (is_tensor_list(plan.args[i], (*stack)[first + i])) {
      length = std::max(length, (*stack)[first + i].toTensorList().size());
    }
  }
  if (length < 2) return false;

  std::vector<Bytes> bytes(length, Bytes(0));  // of the k-th elements of all lists
  Bytes total{0};
  for (size_t i = 0; i < plan.args.size(); ++i) {
    const c10::IValue& value = (*stack)[first + i];
    if (!is_tensor_list(plan.args[i], value)) continue;
    const auto list = value.toTensorList();
    if (list.size() != length) continue;
    for (size_t k = 0; k < length; ++k) {
      const Bytes size = bytes_of(list.get(k));
      bytes[k] += size;
      total += size;
    }
  }
  Engine& engine = runtime().engine();
  Bytes room = engine.budget(engine.host());
  for (const NodeId node : engine.computing_nodes()) room = std::min(room, engine.budget(node));
  if (total.count() <= room.count() / kPartOfRoom) return false;
  for (const NodeId node : engine.computing_nodes()) room = std::min(room, engine.room(node));
  const Bytes limit(room.count() / kPartOfRoom);

  // One scalar for each element may also come as a tensor, where it is cut like the lists.
  const auto scalars_part = [&](const c10::IValue& value, size_t begin, size_t end) -> c10::IValue {
    if (!value.isTensor() || value.toTensor().dim() != 1) return value;
    return value.toTensor().slice(0, static_cast<int64_t>(begin), static_cast<int64_t>(end));
  };

  const std::vector<c10::IValue> whole(stack->end() - static_cast<std::ptrdiff_t>(plan.args.size()),
                                       stack->end());
  stack->resize(first);
  std::vector<c10::IValue> results;
  for (size_t begin = 0; begin < length;) {
    size_t end = begin + 1;
    Bytes sum = bytes[begin];
    while (end < length && sum + bytes[end] <= limit) sum += bytes[end++];
    torch::jit::Stack some;
    some.reserve(whole.size());
    for (size_t i = 0; i < whole.size(); ++i) {
      some.push_back(static_cast<int>(i) == plan.scalars_arg
                         ? scalars_part(whole[i], begin, end)
                         : part(plan.args[i], whole[i], length, begin, end));
    }
    if (end - begin == length) return stack->insert(stack->end(), whole.begin(), whole.end()), false;
    run_managed(op, &some);
    if (results.empty()) {
      results.assign(some.begin(), some.end());
    } else {
      for (size_t r = 0; r < results.size(); ++r) {
        if (!results[r].isTensorList()) continue;  // a tensor that every part wrote, returned again
        auto list = results[r].toTensorList();
        for (const at::Tensor& tensor : some[r].toTensorVector()) list.push_back(tensor);
      }
    }
    begin = end;
  }
  stack->insert(stack->end(), results.begin(), results.end());
  return true;
}

}  // namespace innkeeper::torch_layer
