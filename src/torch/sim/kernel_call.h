// One CPU kernel that runs as a kernel of a simulated accelerator. The call gives the kernel CPU tensors over
// the accelerator's bytes ("faces"), charges the kernel's allocations to the accelerator, and turns the
// kernel's results into hpu tensors.
//
// Used in this order: borrow() each operand, begin(), compute with the faces, computed(), give_back() each
// result, end(). If a step throws, the destructor ends the kernel: its writes count, and resized operands
// keep their new memory.
//
// On accelerators that hold no data (INNKEEPER_SIM: data=off) the faces are meta tensors: the kernel computes
// shapes, and its results get memory of their size. Scratch memory that the CPU kernel would have allocated
// is not charged.
//
// Aliasing: operands that share a storage get faces that share one. A face owns a reference to its hpu
// storage, so an owner of a face keeps the memory, and is seen in the storage's use count (I12).
//
// Thread safety: none; one object is one call.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>
#include <c10/util/flat_hash_map.h>

#include <optional>
#include <span>

#include "sim/accelerator.h"
#include "torch/memory/cpu_allocator.h"
#include "trace/event.h"

namespace innkeeper::torch_layer::sim_backend {

struct Operand {
  at::Tensor tensor;  // The operand on hpu.
  at::Tensor face;    // The same on the CPU, or on meta.
  uint16_t argument;
  bool written;
};

// Contents of the faces: the accelerator's bytes (which read as zeros if it holds no data), or only shapes.
enum class Faces : uint8_t { bytes, shapes };

class KernelCall {
 public:
  explicit KernelCall(Faces faces) : faces_(faces) {}
  ~KernelCall();
  KernelCall(const KernelCall&) = delete;
  KernelCall& operator=(const KernelCall&) = delete;

  // A dense hpu tensor's face. All operands must be on one accelerator; throws as PyTorch does if they are
  // not.
  const at::Tensor& borrow(at::Tensor tensor, size_t argument, bool written);
  // Sets the accelerator of a kernel without operands.
  void place(c10::DeviceIndex index) { index_ = index; }
  c10::DeviceIndex index() const { return index_; }  // -1: nothing is borrowed yet.
  std::span<const Operand> operands() const { return {operands_.data(), operands_.size()}; }

  // Starts the kernel on the current stream. `host_result`: the host waits for the result.
  void begin(bool host_result);
  // Called when the kernel has returned: later allocations are not its own. Operands take over another shape
  // that the kernel gave them.
  void computed();
  // The hpu tensor for a tensor that the kernel returned: the operand itself, a view of an operand's storage,
  // or a new tensor that takes over the memory. Undefined tensors are returned unchanged.
  at::Tensor give_back(at::Tensor face);
  // Ends the kernel, with `kernel` as its work; its bytes are those that it touched. Requires: no face is in
  // use any more.
  void end(cost::KernelCost kernel, std::string_view op) noexcept;

 private:
  struct Lent {
    c10::intrusive_ptr<c10::StorageImpl> storage;
    c10::intrusive_ptr<c10::StorageImpl> face;
    void* data;
  };
  struct Adopted {
    c10::intrusive_ptr<c10::StorageImpl> storage;
    c10::intrusive_ptr<c10::StorageImpl> face;
  };

  c10::intrusive_ptr<c10::StorageImpl> make_face(c10::StorageImpl* storage) const;
  const c10::intrusive_ptr<c10::StorageImpl>& lend(c10::StorageImpl* storage);
  const Operand* operand_with_face(const at::TensorImpl* face) const;
  c10::StorageImpl* storage_of_face(const c10::StorageImpl* face) const;
  c10::intrusive_ptr<c10::StorageImpl> adopt(const c10::intrusive_ptr<c10::StorageImpl>& face);
  at::Tensor give_back_composed(const at::Tensor& face);
  void settle_geometry(Operand& operand);
  void settle_storages();
  void settle_sizes();
  void add_range(const at::Tensor& tensor);

  const Faces faces_;
  c10::DeviceIndex index_ = -1;
  bool running_ = false;
  sim::QueueIndex queue_ = 0;
  double bytes_ = 0;
  c10::SmallVector<Operand, 6> operands_;
  c10::SmallVector<Lent, 6> lent_;
  c10::SmallVector<Adopted, 2> adopted_;
  c10::SmallVector<sim::WrittenRange, 4> written_;
  // Positions in lent_ by hpu storage and by face storage: filled only if there are many.
  ska::flat_hash_map<const void*, size_t> by_storage_;
  std::optional<ArmedCpu> armed_;
  std::optional<c10::impl::ExcludeDispatchKeyGuard> below_;
};

// Whether a tensor is dense memory of a simulated accelerator.
inline bool on_accelerator(const at::Tensor& tensor) { return tensor.defined() && tensor.is_hpu(); }

}  // namespace innkeeper::torch_layer::sim_backend
