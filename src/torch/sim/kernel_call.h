// One CPU kernel that runs as a kernel of a simulated accelerator: it lends the kernel CPU tensors over the
// accelerator's bytes ("faces"), charges what the kernel allocates to the accelerator, and turns what the
// kernel made into hpu tensors.
//
// Use, in this order: borrow() each operand, begin(), compute with the faces, computed(), give_back() each
// result, end(). If anything throws in between, the destructor ends the kernel: what it wrote counts, and
// resized operands keep their new memory.
//
// On accelerators that hold no data (INNKEEPER_SIM: data=off) the faces are meta tensors: the kernel computes
// shapes, and what it made gets memory of that size. What a kernel would have allocated for itself is not
// charged.
//
// Aliasing: operands that share a storage get faces that share one. A face holds on to its hpu storage, so
// an owner of a face keeps the memory, and is seen in the storage's use count (I12).
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
  at::Tensor tensor;  // on hpu
  at::Tensor face;    // the same on the CPU, or on meta
  uint16_t argument;
  bool written;
};

// What the calling thread's kernels have cost since it was last taken, for records.
trace::Work& work_of_thread();
void note_kernel(const cost::KernelCost& kernel);

// What the kernel is lent: the accelerator's bytes (which read as zeros where it holds no data), or shapes.
enum class Faces : uint8_t { bytes, shapes };

class KernelCall {
 public:
  explicit KernelCall(Faces faces) : faces_(faces) {}
  ~KernelCall();
  KernelCall(const KernelCall&) = delete;
  KernelCall& operator=(const KernelCall&) = delete;

  // A dense hpu tensor's face. All must be on one accelerator; throws as PyTorch does if they are not.
  const at::Tensor& borrow(at::Tensor tensor, size_t argument, bool written);
  // The accelerator of kernels without operands.
  void place(c10::DeviceIndex index) { index_ = index; }
  c10::DeviceIndex index() const { return index_; }  // -1: nothing borrowed yet
  std::span<const Operand> operands() const { return {operands_.data(), operands_.size()}; }

  // The kernel starts on the current stream. `host_result`: the host waits for what is computed.
  void begin(bool host_result);
  // The kernel has returned: what is allocated from here on is no longer its own. Operands that it gave
  // another shape take it over.
  void computed();
  // The hpu tensor for a tensor that the kernel returned: the operand itself, a view of an operand's storage,
  // or a new tensor that takes over the memory. Undefined tensors stay so.
  at::Tensor give_back(at::Tensor face);
  // Ends the kernel, which does this work; of bytes count those that it touched. No face may be in use any
  // more.
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
  // Positions in lent_ by hpu storage and by face storage: filled only when there are many.
  ska::flat_hash_map<const void*, size_t> by_storage_;
  std::optional<ArmedCpu> armed_;
  std::optional<c10::impl::ExcludeDispatchKeyGuard> below_;
};

// Whether a tensor is dense memory of a simulated accelerator.
inline bool on_accelerator(const at::Tensor& tensor) { return tensor.defined() && tensor.is_hpu(); }

}  // namespace innkeeper::torch_layer::sim_backend
