#include "torch/operator/operator_call.h"
#include "torch/operator/cpu_gradient.h"

#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <c10/util/flat_hash_map.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "base/log.h"
#include "residency/block/sources.h"
#include "torch/accelerator/c10_device.h"
#include "torch/accelerator/kernel_work.h"
#include "torch/errors.h"
#include "torch/memory/composed.h"
#include "torch/memory/device_index.h"
#include "torch/memory/real_memory.h"
#include "torch/operator/recorded_operator.h"
#include "torch/operator/soft_placement.h"
#include "torch/process/samples.h"
#include "torch/registry/work.h"
#include "trace/stream.h"

namespace innkeeper::torch_layer {
namespace {

at::Tensor new_managed(c10::Storage storage, const at::Tensor& real) {
  auto made = c10::make_intrusive<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(kManagedKey),
                                                   real.dtype());
  copy_geometry(*real.unsafeGetTensorImpl(), *made);
  return at::Tensor(std::move(made));
}

c10::Storage owned(c10::StorageImpl& handle) {
  return c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&handle));
}

at::Tensor tensor_of(c10::TensorImpl& impl) {
  return at::Tensor(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(&impl));
}

at::Tensor view_of(c10::StorageImpl& handle, const c10::TensorImpl& base, const at::Tensor& real) {
  auto made = c10::make_intrusive<c10::TensorImpl>(c10::TensorImpl::VIEW, owned(handle), base.key_set(),
                                                   real.dtype());
  copy_geometry(*real.unsafeGetTensorImpl(), *made);
  return at::Tensor(std::move(made));
}

}  // namespace

OperatorCall::OperatorCall(std::string_view name) : runtime_(torch_layer::runtime()), name_(name) {
  find_nodes_of_results();
  // InferenceMode restores autograd's flags when it ends, so a first use inside of it would not last.
  static thread_local bool seen = false;
  if (!seen && !c10::InferenceMode::is_enabled()) [[unlikely]]
    seen = on_first_use_of_thread();
}

bool OperatorCall::overwrites(std::span<const size_t> made) const {
  for (size_t i = 0; i < operands_.size(); ++i) {
    const Operand& operand = operands_[i];
    if (!operand.written || operand.block->size() == Bytes(0)) continue;
    if (std::find(made.begin(), made.end(), i) == made.end()) return true;
    for (size_t k = 0; k < operands_.size(); ++k)
      if (k != i && operands_[k].block == operand.block) return true;
  }
  return false;
}

OperatorCall::~OperatorCall() { give_up(); }

void OperatorCall::give_up() {
  if (!begun_) return;
  try {
    settle_written();
  } catch (const std::exception& error) {
    TORCH_WARN("innkeeper: after a failed ", name_, ": ", error.what());
  }
  release();
}

void OperatorCall::throw_device_failure(const c10::AcceleratorError& error) const {
  Engine& engine = runtime_.engine();
  auto* device = dynamic_cast<C10Device*>(&engine.device(node_));
  if (device == nullptr || names_its_device(error)) {  // The failure arose while the engine made free space.
    throw_status(Status(Code::device_failed, error.what_without_backtrace()), name_);
  }
  const Status failure = device->failure({"its kernel"}, error);
  std::string line = failure.message();
  for (const Operand& operand : operands_) {
    if (const Status lost = check_not_lost(engine.table(), *operand.block); !lost.ok())
      line += "; " + lost.message();
  }
  throw_status(Status(failure.code(), std::move(line)), name_);
}

std::string OperatorCall::leave_to_host(const c10::OutOfMemoryError& error, bool repeatable) {
  std::string why =
      std::string(error.what_without_backtrace()) + "; its operands take " + to_string(operand_bytes_);
  if (too_small_ != kNoNode) why = why_too_small() + "; nor can the host run it: " + why;
  if (!repeatable || instead_of(runtime_, node_) == node_)
    throw_out_of_memory(std::string(name_) + ": " + why);
  give_up();
  return why;
}

void OperatorCall::throw_of_host(const std::string& why, const c10::OutOfMemoryError& error) const {
  const std::string name = std::string(name_) + ": ";
  std::string again = error.what_without_backtrace();
  if (again.starts_with(name)) again.erase(0, name.size());
  throw_out_of_memory(name + why + "; nor can the host run it: " + again);
}

NodeId OperatorCall::preferred() const {
  const Engine& engine = runtime_.engine();
  const NodeId own = node_at(index_or_current());
  if (own != kNoNode) return engine.place(std::span(accesses_.data(), accesses_.size()), own);
  // With one computing node, home_node() need not be evaluated.
  const bool one = engine.computing_nodes().size() == 1;
  return engine.place(std::span(accesses_.data(), accesses_.size()), one ? kNoNode : home_node());
}

NodeId OperatorCall::choose() {
  if (const NodeId only = OnNode::wanted(); only != kNoNode) [[unlikely]]
    return only;
  const NodeId node = preferred();
  const Bytes budget = runtime_.engine().budget(node);
  if (operand_bytes_ <= budget) [[likely]]
    return node;
  count_blocks_once();
  if (operand_bytes_ <= budget) return node;
  const NodeId other = instead_of(runtime_, node);
  // A copy computes nothing, so it gives no warning.
  if (other != node && name_ != "aten::copy_") too_small_ = node;
  return other;
}

void OperatorCall::count_blocks_once() {
  ska::flat_hash_set<const Block*> counted;
  operand_bytes_ = Bytes(0);
  for (const Access& access : accesses_) {
    if (counted.insert(access.block).second) operand_bytes_ += access.block->size();
  }
}

std::string OperatorCall::why_too_small() const {
  const Bytes budget = runtime_.engine().budget(too_small_);
  const bool alike = to_string(operand_bytes_) == to_string(budget);
  const auto say = [alike](Bytes bytes) {
    return alike ? std::to_string(bytes.count()) + " bytes" : to_string(bytes);
  };
  return "its operands of " + say(operand_bytes_) + " are more than the " + say(budget) + " of " +
         runtime_.engine().device(too_small_).name();
}

Status OperatorCall::bring_together(NodeId node) {
  node_ = node;
  return runtime_.engine().gather(node, std::span(accesses_.data(), accesses_.size()), operand_bytes_,
                                  scope_);
}

void OperatorCall::begin(NodeId node) {
  Status acquired = bring_together(node);
  if (acquired.code() == Code::out_of_memory) [[unlikely]] {
    if (const NodeId other = instead_of(runtime_, node); other != node) {
      const std::string why = acquired.message();
      for (Access& access : accesses_) access.queue = Queue::compute;  // The host has no copy queue.
      acquired = bring_together(other);
      if (acquired.ok()) {
        if (name_ != "aten::copy_") warn_of_host(name_, why);
        node = other;
      } else {
        // The request for `node` may have failed at a lower level, where the host's request fails too. The
        // text before the colon names that level; if both name the same one, the message gives it once.
        const std::string& again = acquired.message();
        if (why.substr(0, why.find(':')) != again.substr(0, again.find(':')))
          acquired = Status(acquired.code(), why + "; nor can the host run it: " + again);
      }
    }
  }
  if (acquired.code() == Code::out_of_memory && too_small_ != kNoNode) [[unlikely]]
    acquired = Status(acquired.code(), why_too_small() + "; nor can the host run it: " + acquired.message());
  if (!acquired.ok()) throw_status(acquired, name_);
  begun_ = true;
  const bool inference = c10::InferenceMode::is_enabled();
  for (Operand& operand : operands_) {
    operand.real = given_before(operand);
    if (!operand.real.defined()) {
      operand.real =
          real_tensor(runtime_, *operand.managed, *operand.handle, *operand.block, node, inference);
    }
    operand.lent = operand.real.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  }
  const NodeBackend& backend = runtime_.backend(node);
  below_.emplace(kAboveKernels);
  if (!backend.host) {
    device_.emplace(backend.device);
    if (runtime_.engine().plans().stream()->on()) [[unlikely]]
      work_of_thread() = {};
  }
  if (runtime_.stress_hash()) [[unlikely]]
    hash_operands();
  // Charges the kernel's allocations of CPU memory to the node.
  if (backend.host) armed_.emplace(&runtime_.engine().evictor(), node);
}

// The real tensor of an earlier operand that is the same tensor: kernels compare identities to see whether an
// output is also an input. The search stops at kMostSearched operands; operators on longer lists write each
// element in place on its own.
at::Tensor OperatorCall::given_before(const Operand& operand) const {
  constexpr size_t kMostSearched = 8;
  if (operands_.size() > kMostSearched) return {};
  for (const Operand& before : operands_) {
    if (&before == &operand) break;
    if (before.managed == operand.managed) return before.real;
  }
  return {};
}

void OperatorCall::hash_operands() {
  read_check_.emplace();
  // A block written through one operand may change under the others.
  ska::flat_hash_set<const Block*> written;
  for (const Operand& operand : operands_) {
    if (operand.written) written.insert(operand.block);
  }
  for (const Operand& operand : operands_) {
    if (written.count(operand.block) == 0) read_check_->before(operand.real);
  }
}

// Index that finds the operand or earlier result of a kernel's result. A linear search is fastest for up to
// kFew of them; lists of thousands need the hash index.
struct OperatorCall::Index {
  ska::flat_hash_map<const void*, const Operand*> tensors;   // Operands by real tensor.
  ska::flat_hash_map<const void*, const Operand*> operands;  // Operands by real storage.
  ska::flat_hash_map<const void*, size_t> adopted;           // Positions in adopted_ by real storage.

  static constexpr size_t kFew = 16;
};

const OperatorCall::Operand* OperatorCall::operand_of(const c10::TensorImpl* real) const {
  if (index_ != nullptr) {
    const auto found = index_->tensors.find(real);
    return found == index_->tensors.end() ? nullptr : found->second;
  }
  for (const Operand& operand : operands_) {
    if (operand.real.unsafeGetTensorImpl() == real) return &operand;
  }
  return nullptr;
}

const OperatorCall::Operand* OperatorCall::operand_over(const c10::StorageImpl* storage) const {
  if (index_ != nullptr) {
    const auto found = index_->operands.find(storage);
    return found == index_->operands.end() ? nullptr : found->second;
  }
  for (const Operand& operand : operands_) {
    if (operand.lent == storage) return &operand;
  }
  return nullptr;
}

const OperatorCall::Adopted* OperatorCall::adopted_over(const c10::StorageImpl* storage) const {
  if (index_ != nullptr) {
    const auto found = index_->adopted.find(storage);
    return found == index_->adopted.end() ? nullptr : &adopted_[found->second];
  }
  for (const Adopted& adopted : adopted_) {
    if (adopted.real.storage().unsafeGetStorageImpl() == storage) return &adopted;
  }
  return nullptr;
}

// A composed tensor (a sparse one, for example): each of its parts becomes a result of its own.
at::Tensor OperatorCall::give_back_composed(const at::Tensor& real, Keeper keeper) {
  Parts parts = parts_of(real);
  if (parts[0].device().type() != runtime_.backend(node_).device.type()) return real;
  for (at::Tensor& part : parts) part = give_back(std::move(part), keeper);
  return assemble(real, parts);
}

at::Tensor OperatorCall::give_back(at::Tensor real, Keeper keeper) {
  if (!real.defined()) return real;
  if (is_composed(real)) [[unlikely]]
    return give_back_composed(real, keeper);
  TORCH_CHECK_NOT_IMPLEMENTED(real.layout() == c10::kStrided, name_, " makes a tensor of the layout ",
                              real.layout(), ", which the managed device has not: let it compute on the CPU");
  if (index_ == nullptr && operands_.size() + adopted_.size() > Index::kFew) [[unlikely]] {
    index_ = std::make_unique<Index>();
    for (const Operand& operand : operands_) {
      index_->tensors.emplace(operand.real.unsafeGetTensorImpl(), &operand);
      index_->operands.emplace(operand.lent, &operand);
    }
    for (size_t i = 0; i < adopted_.size(); ++i) {
      index_->adopted.emplace(adopted_[i].real.storage().unsafeGetStorageImpl(), i);
    }
  }
  if (const Operand* operand = operand_of(real.unsafeGetTensorImpl())) return tensor_of(*operand->managed);
  if (!real.has_storage() || real.device().type() != runtime_.backend(node_).device.type()) return real;
  const c10::StorageImpl* storage = real.storage().unsafeGetStorageImpl();
  if (const Operand* operand = operand_over(storage))
    return view_of(*operand->handle, *operand->managed, real);
  if (const Adopted* adopted = adopted_over(storage)) return new_managed(owned(*adopted->handle), real);
  // A ZeroTensor has no memory; its clone has.
  if (real._is_zerotensor()) [[unlikely]]
    return give_back(real.clone(), keeper);
  c10::Storage handle(adopt_storage(runtime_, real.storage(), node_, index_or_current()));
  // The storage belongs to another result already, so this result needs a copy. A program that writes one
  // result must not change the other. (On other devices the write would also reach memory that the kernel
  // keeps.)
  if (!handle) [[unlikely]]
    return give_back(real.clone(), keeper);
  c10::StorageImpl& made = *handle.unsafeGetStorageImpl();
  Block* block = block_of(made);
  Adopted adopted{std::move(real), &made, block, keeper == Keeper::call ? handle : c10::Storage()};
  at::Tensor managed = new_managed(std::move(handle), adopted.real);
  // Allocations that can fail come first: on an exception the new block dies, and the call must not list it
  // then.
  adopted_.reserve(adopted_.size() + 1);
  accesses_.reserve(accesses_.size() + 1);
  if (index_ != nullptr) index_->adopted.emplace(storage, adopted_.size());
  adopted_.push_back(std::move(adopted));
  if (block->size() != Bytes(0)) accesses_.push_back({.block = block, .pinned = true, .born = true});
  return managed;
}

// Takes over the changes that the kernel made to written operands: another shape, or other memory for the
// storage (out=).
void OperatorCall::settle_written() {
  for (Operand& operand : operands_) {
    if (!operand.written || !operand.real.defined()) continue;
    const bool pinned = operand.block->size() != Bytes(0);
    adopt_resize(runtime_, *operand.handle, *operand.block, node_, pinned);
    if (!pinned && operand.block->size() != Bytes(0))
      accesses_.push_back({.block = operand.block, .write = true});
    if (operand.real.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() != operand.lent)
        [[unlikely]]
      show_other_storage(operand);
    // The managed tensor may have another handle by now: by show_other_storage(), or by `x.data = y` in a
    // kernel written in Python. Its geometry is not the operand's then.
    if (operand.managed->unsafe_storage().unsafeGetStorageImpl() != operand.handle) continue;
    const c10::TensorImpl& real = *operand.real.unsafeGetTensorImpl();
    if (!same_geometry(real, *operand.managed)) copy_geometry(real, *operand.managed);
  }
}

// Handles a library's kernel that gave an operand other memory (set_, .data =): the managed tensor gets the
// managed storage of that memory.
void OperatorCall::show_other_storage(Operand& operand) {
  at::TensorImpl& real = *operand.real.unsafeGetTensorImpl();
  const at::Tensor shown = give_back(at::Tensor(real.shallow_copy_and_detach(0, true)), Keeper::call);
  TORCH_CHECK(is_managed(shown), name_, ": an argument was given memory of ", shown.device(),
              ", where its others lie on ", runtime_.backend(node_).device);
  operand.managed->set_storage_keep_dtype(shown.storage());
  copy_geometry(real, *operand.managed);
  operand.real.reset();  // The real tensor is no view of the block, so it must not be kept for reuse.
}

std::shared_ptr<const RecordedOperator> OperatorCall::keep(const ManagedOp& op,
                                                           c10::ArrayRef<c10::IValue> arguments) const {
  return runtime_.backend(node_).host ? nullptr : RecordedOperator::of(op, arguments, node_);
}

namespace {
std::atomic<int64_t> other_bits{0};
}

int64_t kinds_with_other_bits() { return other_bits.load(std::memory_order_relaxed); }

struct OperatorCall::Trial {
  std::shared_ptr<const RecordedOperator> call;
  std::vector<at::Tensor> results;
  std::vector<c10::ScalarType> dtypes;  // Result dtypes under trial.
};

void OperatorCall::came_of(const std::shared_ptr<const RecordedOperator>& call,
                           c10::ArrayRef<at::Tensor> results) {
  const bool remembers = runtime_.engine().recomputer().is_on();
  const bool is_tried = remembers && runtime_.tries_operators();
  const RepeatedBits& repeated = call->op().signature->repeated;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!is_managed(results[i]) || is_composed(results[i])) continue;
    const c10::ScalarType dtype = results[i].scalar_type();
    const RepeatedBits::Found found = repeated.of(dtype);
    if (is_tried && found == RepeatedBits::Found::other) continue;
    if (is_tried && found == RepeatedBits::Found::unknown && !Recomputer::is_untracked() &&
        repeated.is_wanted(dtype)) {
      if (trial_ == nullptr)
        trial_ = std::make_unique<Trial>(Trial{call, {results.begin(), results.end()}, {}});
      trial_->dtypes.push_back(dtype);
    }
    Block* const block = block_of(results[i]);
    const auto made = std::find_if(accesses_.begin(), accesses_.end(), [&](const Access& access) {
      return access.born && access.block == block;
    });
    if (made == accesses_.end()) continue;
    made->pure = true;
    if (remembers)
      attachment_of(*block).origin =
          std::make_unique<Origin>(Origin{call, i, block->writes(), results[i].scalar_type()});
  }
}

// The trace's record of the operator besides its accesses. It holds no work for the host's kernels, which are
// not priced.
trace::Operation OperatorCall::recorded() const {
  const bool host = runtime_.backend(node_).host;
  return {runtime_.engine().plans().stream()->name(name_),
          host ? trace::Work() : std::exchange(work_of_thread(), {})};
}

void OperatorCall::price_kernels(KernelClock& clock) const {
  c10::SmallVector<const at::Tensor*, 8> operands, results;
  double bytes = 0;
  const auto add = [&bytes](auto& tensors, const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    tensors.push_back(&tensor);
    bytes += static_cast<double>(tensor.numel()) * static_cast<double>(tensor.itemsize());
  };
  for (const Operand& operand : operands_) add(operands, operand.real);
  for (const Adopted& adopted : adopted_) add(results, adopted.real);
  if (results.empty()) {
    for (const Operand& operand : operands_)
      if (operand.written && operand.real.defined()) results.push_back(&operand.real);
  }
  cost::KernelCost kernel = work_of(remembered_work_rule(name_), operands, results);
  kernel.bytes = bytes;
  clock.add(kernel);
}

void OperatorCall::finish() {
  if (read_check_.has_value()) [[unlikely]]
    read_check_->after(name_);
  settle_written();
  Engine& engine = runtime_.engine();
  if (const auto& clock = runtime_.backend(node_).kernel_clock; clock != nullptr && engine.plans().is_heard())
      [[unlikely]] {
    price_kernels(*clock);
    if (clock->wants_probe()) runtime_.measure(node_);
  }
  engine.count_operator(node_);
  release(engine.plans().stream()->on() ? recorded() : trace::Operation());
  if (trial_ != nullptr) [[unlikely]]
    try_again();
  if (sampling()) [[unlikely]]
    sample(engine);
  if (runtime_.stress_recompute()) [[unlikely]] {
    for (const Adopted& adopted : adopted_) (void)engine.recomputer().discard(*adopted.block, node_);
  }
  if (runtime_.stress_evict()) [[unlikely]] {
    const Status evicted = engine.evictor().evict_all();
    if (!evicted.ok()) throw_status(evicted, name_);
  }
  if (too_small_ != kNoNode) [[unlikely]]
    warn_of_host(name_, why_too_small());
}

// Runs the operator a second time and compares. Requires: operands and results are as the operator left them.
void OperatorCall::try_again() {
  const Trial trial = std::move(*std::exchange(trial_, nullptr));
  const Signature& signature = *trial.call->op().signature;
  const std::optional<bool> same = trial.call->gives_again(trial.results);
  if (!same && !signature.repeated.failed()) return;
  using Found = RepeatedBits::Found;
  for (const c10::ScalarType dtype : trial.dtypes) {
    if (!signature.repeated.found(dtype, same.value_or(false) ? Found::same : Found::other)) continue;
    if (same != false) continue;
    other_bits.fetch_add(1, std::memory_order_relaxed);
    log(LogLevel::warn, std::string(name_) + " of " + c10::toString(dtype) +
                            " gave other bits when it ran again: what it makes is copied, not recomputed");
  }
}

void OperatorCall::release(const trace::Operation& what) noexcept {
  begun_ = false;
  read_check_.reset();
  device_.reset();
  armed_.reset();
  below_.reset();
  Engine& engine = runtime_.engine();
  for (Operand& operand : operands_) {
    if (operand.real.defined()) keep_real_tensor(*operand.block, node_, std::move(operand.real));
  }
  for (Adopted& adopted : adopted_) keep_real_tensor(*adopted.block, node_, std::move(adopted.real), true);
  // If a library or the program still holds a block through its real tensor, the block stays pinned as
  // escaped (I12). Its holder may touch the bytes at any time.
  for (Access& access : accesses_) {
    if (access.pinned && is_held_elsewhere(*access.block, node_)) engine.keep_escaped(node_, access);  // I12
  }
  engine.release(node_, std::span(accesses_.data(), accesses_.size()), what);
  scope_.reset();
}

}  // namespace innkeeper::torch_layer
