// Runs element-by-element operators over lists (_foreach_*, fused optimizers) in parts that fit the free
// space and whose elements are at one node. The operator writes each element exactly once, and its bits are
// the same for every way to cut the list (I9).
//
// The largest elements come first: if one of them cannot run at all, nothing has been written yet. Elements
// that depend on each other (one writes memory that another has) keep their order.
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <unordered_map>
#include <vector>

#include "torch/errors.h"
#include "torch/memory/handle.h"
#include "torch/operator/fallback.h"
#include "torch/operator/soft_placement.h"
#include "torch/operator/sublists.h"
#include "torch/process/runtime_state.h"

namespace innkeeper::torch_layer {
namespace {

using Kind = Parameter::Kind;

// The operands of one part take at most 1/kPartOfSpace of the free space. While the kernel works on one part,
// the engine fetches the next and evicts the previous one. One more kernel costs little compared with moving
// so many bytes, but much compared with few, so a part may take kSmallPart bytes. A part never takes more
// than 1/kLargestPart of the free space, because the kernel's results and the pins of other threads need free
// space as well.
constexpr int64_t kPartOfSpace = 16;
constexpr int64_t kSmallPart = 1 << 20;
constexpr int64_t kLargestPart = 3;

Bytes part_of(Bytes space) {
  return Bytes(std::max(space.count() / kPartOfSpace, std::min(space.count() / kLargestPart, kSmallPart)));
}

// Positions of the elements of one call, in order.
using Part = std::vector<size_t>;

struct Element {
  Bytes bytes{0};  // Bytes of the tensors of all lists at the element's position.
  // Bytes of these that the user has pinned at `node`: already there, and outside of its free space.
  Bytes pinned{0};
  NodeId node = kNoNode;
};

bool is_tensor_list(const Parameter& arg, const c10::IValue& value) {
  return arg.kind == Kind::tensor_list && value.isTensorList();
}

class Lists {
 public:
  Lists(const Signature& signature, c10::ArrayRef<c10::IValue> arguments)
      : signature_(signature), arguments_(arguments) {
    for (size_t i = 0; i < signature.args.size(); ++i) {
      if (!is_tensor_list(signature.args[i], arguments[i])) continue;
      length_ = std::max(length_, arguments[i].toTensorList().size());
    }
  }
  size_t length() const { return length_; }

  std::vector<Element> elements(Engine& engine) const {
    std::vector<Element> all(length_);
    std::vector<c10::List<at::Tensor>> lists;
    std::vector<bool> written;
    for (size_t i = 0; i < signature_.args.size(); ++i) {
      if (!is_cut(i)) continue;
      lists.push_back(arguments_[i].toTensorList());
      written.push_back(signature_.args[i].written);
    }
    std::vector<Access> accesses;
    for (size_t k = 0; k < length_; ++k) {
      accesses.clear();
      for (size_t i = 0; i < lists.size(); ++i) {
        const at::Tensor tensor = lists[i].get(k);
        if (!is_managed(tensor)) continue;
        Block* block = block_of(tensor);
        if (std::any_of(accesses.begin(), accesses.end(),
                        [block](const Access& before) { return before.block == block; })) {
          continue;
        }
        all[k].bytes += block->size();
        accesses.push_back({block, written[i]});
      }
      all[k].node = engine.place(std::span<const Access>(accesses), home_node());
      for (const Access& access : accesses) {
        if (access.block->replica(all[k].node).user_pins != 0) all[k].pinned += access.block->size();
      }
    }
    return all;
  }

  // Whether an element writes memory that another element has, or that an argument common to all parts has: a
  // scalar that is a view of an element, for example.
  bool depend() const {
    constexpr size_t kBeside = SIZE_MAX;  // Position of the arguments that every part of the call has.
    std::unordered_map<const Block*, size_t> writers;
    const auto any = [this](auto&& what) {
      for (size_t i = 0; i < signature_.args.size(); ++i) {
        const bool written = signature_.args[i].written;
        const auto is_so = [&](const at::Tensor& tensor, size_t k) {
          return is_managed(tensor) && tensor.numel() != 0 && what(block_of(tensor), k, written);
        };
        const c10::IValue& value = arguments_[i];
        if (value.isTensor() && is_so(value.toTensor(), kBeside)) return true;
        if (!is_tensor_list(signature_.args[i], value)) continue;
        const auto list = value.toTensorList();
        for (size_t k = 0; k < list.size(); ++k)
          if (is_so(list.get(k), is_cut(i) ? k : kBeside)) return true;
      }
      return false;
    };
    const bool written_twice = any([&](const Block* block, size_t k, bool written) {
      return written && writers.try_emplace(block, k).first->second != k;
    });
    return written_twice || any([&](const Block* block, size_t k, bool) {
             const auto writer = writers.find(block);
             return writer != writers.end() && writer->second != k;
           });
  }

  // The arguments of a call on a part of the elements. Arguments that are not lists of one value for each
  // element stay whole.
  torch::jit::Stack arguments(const Part& part) const {
    torch::jit::Stack some;
    some.reserve(arguments_.size());
    for (size_t i = 0; i < arguments_.size(); ++i) some.push_back(argument(i, part));
    return some;
  }

 private:
  bool is_cut(size_t i) const {
    return is_tensor_list(signature_.args[i], arguments_[i]) &&
           arguments_[i].toTensorList().size() == length_;
  }

  c10::IValue argument(size_t i, const Part& part) const {
    const c10::IValue& value = arguments_[i];
    if (is_cut(i)) {
      const auto list = value.toTensorList();
      c10::List<at::Tensor> some;
      some.reserve(part.size());
      for (const size_t k : part) some.push_back(list.get(k));
      return some;
    }
    if (signature_.args[i].kind == Kind::scalar_list && value.isList() &&
        value.toListRef().size() == length_) {
      c10::impl::GenericList some(value.toList().elementType());
      for (const size_t k : part) some.push_back(value.toListRef()[k]);
      return some;
    }
    // A tensor may also hold one scalar for each element.
    if (static_cast<int>(i) == signature_.scalars_arg && value.isTensor() && value.toTensor().dim() == 1) {
      const at::Tensor& scalars = value.toTensor();
      std::vector<at::Tensor> some;
      for (const size_t k : part) some.push_back(scalars.select(0, static_cast<int64_t>(k)));
      return at::stack(some);
    }
    return value;
  }

  const Signature& signature_;
  const c10::ArrayRef<c10::IValue> arguments_;
  size_t length_ = 0;
};

// Throws if an element fits neither its node nor the host as a substitute. Requires: no element has been
// written.
void check_each_fits(Runtime& runtime, const std::string& name, const std::vector<Element>& elements) {
  Engine& engine = runtime.engine();
  std::array<Bytes, kMaxNodes> unpinned{};
  for (size_t i = 0; i < engine.node_count(); ++i)
    unpinned[i] = engine.unpinned_budget(NodeId{static_cast<uint8_t>(i)});
  for (size_t k = 0; k < elements.size(); ++k) {
    const Element& element = elements[k];
    const Bytes space = unpinned[index_of(element.node)];
    if (element.bytes - element.pinned <= space) continue;
    const NodeId other = element.pinned == Bytes(0) ? instead_of(runtime, element.node) : element.node;
    if (other != element.node && element.bytes <= unpinned[index_of(other)]) continue;
    throw_status(
        Status(Code::out_of_memory,
               "element " + std::to_string(k) + " of its lists takes " + to_string(element.bytes) + ", and " +
                   engine.device(element.node).name() + " has " + to_string(space) +
                   " that is not pinned (a budget of " + to_string(engine.budget(element.node)) +
                   "); nothing was written. A larger budget in INNKEEPER_NODES or configure() would help"),
        name);
  }
}

Bytes limit_of(Engine& engine, NodeId node) {
  return part_of(std::min(engine.unpinned_budget(node), engine.budget(engine.host())));
}

// Parts in the lists' order; the elements of each part are at one node and its operands fit the node's free
// space.
std::vector<Part> cut_in_order(Engine& engine, const std::vector<Element>& elements) {
  std::vector<Part> parts;
  Bytes sum{0};
  for (size_t k = 0; k < elements.size(); ++k) {
    const bool fits = k != 0 && elements[k].node == elements[k - 1].node &&
                      sum + elements[k].bytes <= limit_of(engine, elements[k].node);
    if (!fits) {
      parts.emplace_back();
      sum = Bytes(0);
    }
    parts.back().push_back(k);
    sum += elements[k].bytes;
  }
  return parts;
}

// Parts with the largest elements first; the elements of each part are at one node and its operands fit the
// node's free space.
std::vector<Part> cut(Engine& engine, const std::vector<Element>& elements) {
  Part order(elements.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tuple(elements[b].bytes, elements[a].node) < std::tuple(elements[a].bytes, elements[b].node);
  });
  std::vector<Part> parts;
  for (const NodeId node : engine.computing_nodes()) {
    Bytes sum{0};
    const Bytes limit = limit_of(engine, node);
    bool fresh = true;
    for (const size_t k : order) {
      if (elements[k].node != node) continue;
      if (fresh || sum + elements[k].bytes > limit) {
        parts.emplace_back();
        sum = Bytes(0);
        fresh = false;
      }
      parts.back().push_back(k);
      sum += elements[k].bytes;
    }
  }
  std::stable_sort(parts.begin(), parts.end(), [&](const Part& a, const Part& b) {
    return elements[a.front()].bytes > elements[b.front()].bytes;
  });
  return parts;
}

// Results of the parts, each at its element's position.
class Results {
 public:
  Results(size_t count, size_t length) : lists_(count), single_(count), length_(length) {}

  void add(const Part& part, const torch::jit::Stack& returned) {
    for (size_t r = 0; r < lists_.size(); ++r) {
      if (!returned[r].isTensorList()) {  // A tensor that every part has written and returned.
        single_[r] = returned[r];
        continue;
      }
      lists_[r].resize(length_);
      const auto list = returned[r].toTensorList();
      for (size_t i = 0; i < part.size(); ++i) lists_[r][part[i]] = list.get(i);
    }
  }

  void push_to(torch::jit::Stack& stack) {
    for (size_t r = 0; r < lists_.size(); ++r) {
      if (lists_[r].empty()) {
        stack.push_back(std::move(single_[r]));
      } else {
        stack.emplace_back(c10::List<at::Tensor>(lists_[r]));
      }
    }
  }

 private:
  std::vector<std::vector<at::Tensor>> lists_;
  std::vector<c10::IValue> single_;
  const size_t length_;
};

}  // namespace

bool run_in_sublists(const ManagedOp& op, torch::jit::Stack* stack) {
  const Signature& signature = *op.signature;
  const size_t first = stack->size() - signature.args.size();
  const Lists given(signature, torch::jit::last(*stack, signature.args.size()));
  if (given.length() < 2) return false;
  Engine& engine = runtime().engine();
  const std::vector<Element> elements = given.elements(engine);
  const bool one_node = std::all_of(elements.begin(), elements.end(), [&](const Element& element) {
    return element.node == elements.front().node;
  });
  if (one_node) {
    Bytes total{0};
    for (const Element& element : elements) total += element.bytes;
    if (total <= part_of(std::min(engine.budget(elements.front().node), engine.budget(engine.host()))))
      return false;
  }
  const std::vector<Part> parts =
      signature.any_written && given.depend() ? cut_in_order(engine, elements) : cut(engine, elements);
  if (parts.size() == 1) return false;
  check_each_fits(runtime(), signature.op.schema().name(), elements);

  torch::jit::Stack whole(stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end());
  // The operator on whole lists reads all scalars before it writes an element; the copy makes the parts do
  // the same.
  if (const int at = signature.scalars_arg; at >= 0 && whole[static_cast<size_t>(at)].isTensor())
    whole[static_cast<size_t>(at)] = whole[static_cast<size_t>(at)].toTensor().clone();
  const Lists lists(signature, whole);
  stack->resize(first);
  Results results(signature.nrets, elements.size());
  size_t done = 0;
  for (const Part& part : parts) {
    torch::jit::Stack some = lists.arguments(part);
    try {
      run_managed(op, &some);
    } catch (const c10::OutOfMemoryError& error) {
      if (done == 0 || !signature.any_written) throw;
      TORCH_CHECK_WITH(OutOfMemoryError, false, error.what_without_backtrace(), "; ", done, " of ",
                       elements.size(), " elements of its lists had been written by then");
    }
    results.add(part, some);
    done += part.size();
  }
  results.push_to(*stack);
  return true;
}

}  // namespace innkeeper::torch_layer
