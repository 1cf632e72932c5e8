// One operator on managed tensors: brings its operands to one node and pins them there,
// lends the kernel real tensors over them, and turns what the kernel made into managed tensors.
//
// drive.h uses it, in this order: operand() for each managed tensor, begin(), real(i) to the kernel,
// give_back() each result, finish(). If anything throws in between, the destructor does what finish() would:
// what the kernel may have written counts as written (I7), a resized operand keeps its new memory, every pin
// is given back.
//
// Thread safety: none; one object is one call on one thread.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <optional>
#include <string_view>

#include "residency/engine.h"
#include "torch/accelerator/compute_queue.h"
#include "torch/memory/cpu_allocator.h"
#include "torch/memory/handle.h"
#include "torch/operator/read_check.h"
#include "torch/process/runtime_state.h"
#include "trace/stream.h"

namespace innkeeper::torch_layer {

class RecordedOperator;  // recorded_operator.h
struct ManagedOp;

// Nothing inside a kernel is recorded by autograd or cast by autocast.
inline constexpr c10::DispatchKeySet kAboveKernels =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;

class OperatorCall {
 public:
  explicit OperatorCall(std::string_view name);
  ~OperatorCall();
  OperatorCall(const OperatorCall&) = delete;
  OperatorCall& operator=(const OperatorCall&) = delete;

  // Takes a managed tensor; returns its index for real(). One that is borrowed must outlive the call: to own
  // what Python alone holds costs its interpreter's lock, twice.
  size_t operand(const at::Tensor& managed, bool written) {
    const size_t index = borrow(managed, written);
    keep(index, managed);
    return index;
  }
  size_t borrow(const at::Tensor& managed, bool written) {
    c10::TensorImpl& impl = *managed.unsafeGetTensorImpl();
    c10::StorageImpl& handle = *impl.storage().unsafeGetStorageImpl();
    Block* const block = block_of(handle);
    note_index(impl.device().index());
    operands_.emplace_back(Operand{&impl, &handle, block, at::Tensor(), written});
    if (const Bytes size = block->size(); size != Bytes(0)) {
      accesses_.push_back({block, written, false});
      operand_bytes_ += size;
    }
    return operands_.size() - 1;
  }
  size_t borrow(at::Tensor&&, bool) = delete;
  // Owns from here on what was borrowed, and the block with it: a kernel that is Python may give the tensor
  // another one (x.data = y) while it runs.
  void keep(size_t index, at::Tensor managed) {
    kept_handles_.push_back(
        c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(operands_[index].handle)));
    kept_.push_back(std::move(managed));
  }
  // The device index of the operands, which results inherit; -1 if there are no managed operands.
  c10::DeviceIndex index() const { return device_index_; }
  c10::DeviceIndex index_or_current() const { return device_index_ < 0 ? current_index() : device_index_; }
  void take_index(c10::DeviceIndex index) { device_index_ = index; }
  // Whether operands have different device indices.
  bool mixed_indices() const { return mixed_indices_; }
  size_t operand_count() const { return operands_.size(); }
  // The one operand's bytes are copied on this queue of the node (residency/movement/program_copy.h). Before begin().
  void use_queue(Queue queue) { accesses_.front().queue = queue; }
  Queue queue() const { return accesses_.empty() ? Queue::compute : accesses_.front().queue; }
  const Access& only_access() const { return accesses_.front(); }
  // Of all operands: those of one block count each, until count_blocks_once().
  Bytes operand_bytes() const { return operand_bytes_; }
  void count_blocks_once();
  Runtime& runtime() const { return runtime_; }

  // Where the operator should run: where most of its operands' bytes are, the thread's home without any; the
  // host instead, if they are too large for that (soft_placement.h).
  NodeId choose();
  // The node that choose() found too small for the operands; kNoNode if none, and what to say of one.
  NodeId too_small() const { return too_small_; }
  std::string why_too_small() const;
  // Whether an operand that has any bytes is written, but for these, which the operator only makes: they may
  // be made again, unless another operand is over the same bytes.
  bool overwrites(std::span<const size_t> made) const;
  // Whether the operands alone are larger than every accelerator.
  bool too_large() {
    if (fits_somewhere()) [[likely]]
      return false;
    count_blocks_once();
    return !fits_somewhere();
  }
  // Brings everything to `node`, pins it and makes the real tensors: on the host instead, where they do not
  // fit (soft_placement.h). Throws torch.OutOfMemoryError with the numbers.
  void begin(NodeId node);
  NodeId node() const { return node_; }
  at::Tensor& real(size_t index) { return operands_[index].real; }
  const at::Tensor& real(size_t index) const { return operands_[index].real; }

  // The managed tensor for one that the kernel returned: the operand itself, a view of an operand's or an
  // earlier result's storage, or a new tensor whose block takes over the memory. What is not on the node
  // stays as it is. `keeper`: who owns the managed tensor as long as this call lasts, whatever happens;
  // to own it twice costs two locked instructions.
  enum class Keeper : uint8_t { call, caller };
  at::Tensor give_back(at::Tensor real, Keeper keeper = Keeper::call);
  // Whether there is a listener for what can be recomputed: a plan that may, or a record.
  bool keeps_calls() const {
    Engine& engine = runtime_.engine();
    if (!engine.recomputer().is_on()) return engine.plans().stream()->on();
    return (engine.plans().is_heard() && engine.plans().may_discard_next()) || runtime_.stress_recompute();
  }
  // What it takes to run a pure operator again; null where it cannot be. Before the kernel runs.
  std::shared_ptr<const RecordedOperator> keep(const ManagedOp& op,
                                               c10::ArrayRef<c10::IValue> arguments) const;
  // The results that it gave back, in order, are the same whenever that is run.
  void came_of(const std::shared_ptr<const RecordedOperator>& call, c10::ArrayRef<at::Tensor> results);
  void finish();
  // The kernel found no room. Throws that with the operator's name, unless the call is repeatable and the
  // host may take it: then gives it up, and says why.
  std::string leave_to_host(const c10::OutOfMemoryError& error, bool repeatable);
  // The host found none either.
  [[noreturn]] void throw_of_host(const std::string& why, const c10::OutOfMemoryError& error) const;
  // The kernel ended with this. Throws it again as torch.AcceleratorError that names the operator and the
  // node and, where the node is gone for good, the operands that went with it.
  [[noreturn]] void throw_device_failure(const c10::AcceleratorError& error) const;

 private:
  void note_index(c10::DeviceIndex index) {
    if (device_index_ < 0) {
      device_index_ = index;
    } else if (index != device_index_) [[unlikely]] {
      mixed_indices_ = true;
    }
  }

  struct Operand {
    c10::TensorImpl* managed;
    c10::StorageImpl* handle;
    Block* block;
    at::Tensor real;
    bool written;
    const c10::StorageImpl* lent = nullptr;  // the real tensor's storage when the kernel was given it
  };
  struct Adopted {
    at::Tensor real;
    c10::StorageImpl* handle;
    Block* block;
    c10::Storage kept;  // the handle, unless the caller keeps it
  };

  bool fits_somewhere() const {
    Engine& engine = runtime_.engine();
    for (const NodeId node : engine.computing_nodes()) {
      if (operand_bytes_ <= engine.budget(node) || runtime_.backend(node).host) [[likely]]
        return true;
    }
    return false;
  }
  // What the destructor does, where the call did not come to its end.
  void give_up();
  NodeId preferred() const;
  Status bring_together(NodeId node);
  at::Tensor give_back_composed(const at::Tensor& real, Keeper keeper);
  const Operand* operand_of(const c10::TensorImpl* real) const;
  const Operand* operand_over(const c10::StorageImpl* storage) const;
  const Adopted* adopted_over(const c10::StorageImpl* storage) const;
  at::Tensor given_before(const Operand& operand) const;
  void settle_written();
  void show_other_storage(Operand& operand);
  void hash_operands();
  void release(const trace::Operation& what = {}) noexcept;
  void try_again();
  trace::Operation recorded() const;
  void price_kernels(KernelClock& clock) const;

  Runtime& runtime_;
  const std::string_view name_;
  NodeId node_ = kNoNode;
  NodeId too_small_ = kNoNode;
  bool begun_ = false;
  bool mixed_indices_ = false;
  c10::DeviceIndex device_index_ = -1;
  Bytes operand_bytes_{0};
  c10::SmallVector<Operand, 5> operands_;
  c10::SmallVector<at::Tensor, 4> kept_;
  c10::SmallVector<c10::Storage, 4> kept_handles_;
  c10::SmallVector<Access, 5> accesses_;
  c10::SmallVector<Adopted, 1> adopted_;
  struct Index;  // of all these by what they are over, where lists are long
  std::unique_ptr<Index> index_;
  struct Trial;  // of a kind that never ran twice
  std::unique_ptr<Trial> trial_;
  std::optional<NodeAdmission> scope_;
  std::optional<ArmedCpu> armed_;
  // Of an accelerator.
  struct OnDevice {
    explicit OnDevice(c10::Device device) : current(device), queue(device) {}
    c10::OptionalDeviceGuard current;
    OnComputeQueue queue;
  };
  std::optional<OnDevice> device_;
  std::optional<c10::impl::ExcludeDispatchKeyGuard> below_;
  std::optional<ReadCheck> read_check_;
};

// Autograd's device thread would take every backward pass of the one device: on a thread's first
// operator its multithreading flag is cleared; and its home is made to travel, should the user set the flag
// again. Returns whether all is done; if not it is to be called again.
bool on_first_use_of_thread();

}  // namespace innkeeper::torch_layer
