// One operator on managed tensors. It fetches the operands to one node and pins them there, exposes real
// tensors over them to the kernel, and turns the kernel's results into managed tensors.
//
// drive.h uses it in this order: operand() for each managed tensor, begin(), real(i) for the kernel's
// arguments, give_back() for each result, finish(). If a step throws, the destructor does the work of
// finish(): it counts operands that the kernel may have written as written (I7), lets a resized operand keep
// its new memory, and unpins every operand.
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

// Dispatch keys that are excluded while a kernel runs: neither autograd records a kernel's calls nor autocast
// casts their arguments.
inline constexpr c10::DispatchKeySet kAboveKernels =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;

class OperatorCall {
 public:
  explicit OperatorCall(std::string_view name);
  ~OperatorCall();
  OperatorCall(const OperatorCall&) = delete;
  OperatorCall& operator=(const OperatorCall&) = delete;

  // Takes a managed tensor; returns its index for real(). A borrowed tensor must outlive the call. Borrowing
  // is cheaper: to own a tensor whose only owner is Python takes the interpreter's lock twice.
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
  // From here on the call owns the borrowed tensor, and its block too. A kernel written in Python may give
  // the tensor another block (x.data = y) while it runs.
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
  // Names the queue of the node on which the only operand's bytes are copied (movement/program_copy.h).
  // Requires: before begin().
  void use_queue(Queue queue) { accesses_.front().queue = queue; }
  Queue queue() const { return accesses_.empty() ? Queue::compute : accesses_.front().queue; }
  const Access& only_access() const { return accesses_.front(); }
  // Bytes of all operands. Operands over one block count once each until count_blocks_once().
  Bytes operand_bytes() const { return operand_bytes_; }
  void count_blocks_once();
  Runtime& runtime() const { return runtime_; }

  // The node where the operator should run: the node that holds most of its operands' bytes, or the thread's
  // preferred node if it has none. The host instead, if the operands do not fit that node (soft_placement.h).
  NodeId choose();
  // The node that choose() found too small for the operands, kNoNode if none; and the message about it.
  NodeId too_small() const { return too_small_; }
  std::string why_too_small() const;
  // Whether the operator writes an operand that has bytes. The operands `made` (indices) do not count,
  // because the operator only makes them and can make them again; they do count if another operand lies over
  // the same block.
  bool overwrites(std::span<const size_t> made) const;
  // Whether the operands alone are larger than every accelerator.
  bool too_large() {
    if (fits_somewhere()) [[likely]]
      return false;
    count_blocks_once();
    return !fits_somewhere();
  }
  // Fetches all operands to `node`, pins them and makes the real tensors; on the host instead, if they do not
  // fit there (soft_placement.h). Throws torch.OutOfMemoryError with the byte counts.
  void begin(NodeId node);
  NodeId node() const { return node_; }
  at::Tensor& real(size_t index) { return operands_[index].real; }
  const at::Tensor& real(size_t index) const { return operands_[index].real; }

  // The managed tensor for a tensor that the kernel returned: the operand itself, a view of the storage of an
  // operand or of an earlier result, or a new tensor whose block takes over the memory. A tensor on another
  // device is returned unchanged. `keeper` names the owner of the managed tensor while this call lasts,
  // whether or not the call fails. A second owner costs two locked instructions.
  enum class Keeper : uint8_t { call, caller };
  at::Tensor give_back(at::Tensor real, Keeper keeper = Keeper::call);
  // Whether the engine uses recorded calls: a plan may recompute, or a trace records which blocks can be
  // recomputed.
  bool keeps_calls() const {
    Engine& engine = runtime_.engine();
    if (!engine.recomputer().is_on()) return engine.plans().stream()->on();
    return (engine.plans().is_heard() && engine.plans().may_discard_next()) || runtime_.stress_recompute();
  }
  // A record with which a pure operator can run again; null if it cannot. Requires: the kernel has not run
  // yet.
  std::shared_ptr<const RecordedOperator> keep(const ManagedOp& op,
                                               c10::ArrayRef<c10::IValue> arguments) const;
  // States that `results`, in order, are the results of `call`, and that each run of `call` gives them again.
  void came_of(const std::shared_ptr<const RecordedOperator>& call, c10::ArrayRef<at::Tensor> results);
  void finish();
  // Handles a kernel that found no free space. Throws the error with the operator's name, unless the call is
  // repeatable and the host may run it: then unpins the operands and returns the reason.
  std::string leave_to_host(const c10::OutOfMemoryError& error, bool repeatable);
  // Throws the error of a host that found no free space either.
  [[noreturn]] void throw_of_host(const std::string& why, const c10::OutOfMemoryError& error) const;
  // Throws the kernel's failure again as torch.AcceleratorError that names the operator and the node. If the
  // device is lost, the message also names the operands that were lost with it.
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
    const c10::StorageImpl* lent = nullptr;  // Storage of the real tensor that the kernel was given.
  };
  struct Adopted {
    at::Tensor real;
    c10::StorageImpl* handle;
    Block* block;
    c10::Storage kept;  // Owner of the handle; empty if the caller owns it.
  };

  bool fits_somewhere() const {
    Engine& engine = runtime_.engine();
    for (const NodeId node : engine.computing_nodes()) {
      if (operand_bytes_ <= engine.budget(node) || runtime_.backend(node).host) [[likely]]
        return true;
    }
    return false;
  }
  // The destructor's work if the call was not finished.
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
  struct Index;  // Hash index over the operands and results; used for long lists.
  std::unique_ptr<Index> index_;
  struct Trial;  // A second run of an operator kind whose repeatability is unknown.
  std::unique_ptr<Trial> trial_;
  std::optional<NodeAdmission> scope_;
  std::optional<ArmedCpu> armed_;
  // State while a kernel runs on an accelerator: its device is the current one, and its compute queue the
  // current stream.
  struct OnDevice {
    explicit OnDevice(c10::Device device) : current(device), queue(device) {}
    c10::OptionalDeviceGuard current;
    OnComputeQueue queue;
  };
  std::optional<OnDevice> device_;
  std::optional<c10::impl::ExcludeDispatchKeyGuard> below_;
  std::optional<ReadCheck> read_check_;
};

// Clears the multithreading flag of autograd on a thread's first operator, because autograd's device thread
// would otherwise run all backward passes of the managed device. Makes the thread's preferred node travel to
// that thread if the user sets the flag again. Returns false if it must be called again.
bool on_first_use_of_thread();

}  // namespace innkeeper::torch_layer
