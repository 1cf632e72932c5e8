// The second half of KernelCall: results, resized operands, and the ranges that the kernel wrote.
#include <ATen/EmptyTensor.h>

#include "torch/accelerator/kernel_work.h"
#include "torch/memory/composed.h"
#include "torch/process/faults.h"
#include "torch/sim/allocator.h"
#include "torch/sim/kernel_call.h"
#include "torch/sim/sim_backend.h"
#include "torch/sim/storage_resize.h"

namespace innkeeper::torch_layer::sim_backend {
namespace {

constexpr c10::DispatchKeySet kDense(c10::DispatchKey::HPU);

bool same_geometry(const at::TensorImpl* a, const at::TensorImpl* b) {
  return a->is_conj() == b->is_conj() && a->is_neg() == b->is_neg() &&
         a->storage_offset() == b->storage_offset() && a->sizes() == b->sizes() &&
         a->strides() == b->strides();
}

void copy_geometry(at::TensorImpl* to, const at::TensorImpl* from) {
  to->set_sizes_and_strides(from->sizes(), from->strides(), from->storage_offset());
  if (to->is_conj() != from->is_conj()) to->_set_conj(from->is_conj());
  if (to->is_neg() != from->is_neg()) to->_set_neg(from->is_neg());
}

void release_face(void* context) {
  c10::intrusive_ptr<c10::StorageImpl>::reclaim(static_cast<c10::StorageImpl*>(context));
}

// The memory of a storage that a kernel made. If it has no other owner, it is moved out. Otherwise it is
// shared, and stays as long as either owner needs it.
c10::DataPtr take_memory(const c10::intrusive_ptr<c10::StorageImpl>& face, c10::Device device) {
  c10::DataPtr& memory = face->_mutable_data_ptr_no_checks();
  if (face.use_count() == 1) {
    c10::DataPtr taken = unlisted(std::move(memory));
    taken.unsafe_set_device(device);
    return taken;
  }
  void* data = memory.get();
  auto kept = face;
  return {data, kept.release(), &release_face, device};
}

}  // namespace

const Operand* KernelCall::operand_with_face(const at::TensorImpl* face) const {
  for (const Operand& operand : operands_) {
    if (operand.face.unsafeGetTensorImpl() == face) return &operand;
  }
  return nullptr;
}

c10::StorageImpl* KernelCall::storage_of_face(const c10::StorageImpl* face) const {
  if (!by_storage_.empty()) {
    const auto found = by_storage_.find(face);
    return found == by_storage_.end() ? nullptr : lent_[found->second].storage.get();
  }
  for (const Lent& lent : lent_) {
    if (lent.face.get() == face) return lent.storage.get();
  }
  return nullptr;
}

// Outputs that share a storage (unsafe_split's) get one storage together. Its memory moves when the kernel
// ends. A shape has no memory, so its memory is allocated here.
c10::intrusive_ptr<c10::StorageImpl> KernelCall::adopt(const c10::intrusive_ptr<c10::StorageImpl>& face) {
  for (const Adopted& adopted : adopted_) {
    if (adopted.face == face) return adopted.storage;
  }
  const c10::Device device(c10::kHPU, index_);
  const size_t size = faces_ == Faces::bytes ? 0 : face->nbytes();
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), size,
                                                       allocate(index_, size, device), &device_allocator(),
                                                       /*resizable=*/true);
  adopted_.push_back({storage, face});
  return storage;
}

// A composed tensor: each of its parts becomes a result of its own.
at::Tensor KernelCall::give_back_composed(const at::Tensor& face) {
  TORCH_CHECK_NOT_IMPLEMENTED(faces_ == Faces::bytes, "the shapes of an operator's result (", face.layout(),
                              ") depend on data, which INNKEEPER_SIM has off");
  TORCH_CHECK_NOT_IMPLEMENTED(
      !face.key_set().has(c10::DispatchKey::SparseCsr), "an operator gave a compressed sparse tensor (",
      face.layout(),
      "), which PyTorch has not for simulated accelerators: let it compute on the CPU, "
      "or give torch.sparse_coo");
  Parts parts;
  for (at::Tensor& part : parts_of(face)) parts.push_back(give_back(std::move(part)));
  return assemble(face, parts);
}

at::Tensor KernelCall::give_back(at::Tensor face) {
  if (!face.defined()) return face;
  at::TensorImpl* impl = face.unsafeGetTensorImpl();
  if (is_composed(face)) [[unlikely]]
    return give_back_composed(face);
  TORCH_CHECK_NOT_IMPLEMENTED(impl->layout() == c10::kStrided, "an operator gave a tensor of the layout ",
                              impl->layout(), ", which simulated accelerators do not hold");
  if (impl->device_type() != (faces_ == Faces::bytes ? c10::kCPU : c10::kMeta)) return face;
  c10::StorageImpl* const face_storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (c10::StorageImpl* storage = storage_of_face(face_storage); storage != nullptr) {
    if (const Operand* operand = operand_with_face(impl)) return operand->tensor;
    auto view = c10::make_intrusive<c10::TensorImpl>(
        c10::TensorImpl::VIEW, c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage)),
        operands_.front().tensor.key_set() -
            c10::DispatchKeySet({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative}),
        impl->dtype());
    copy_geometry(view.get(), impl);
    return at::Tensor(std::move(view));
  }
  // The kernel replaced its storage.
  if (const Operand* operand = operand_with_face(impl)) return operand->tensor;
  auto result = c10::make_intrusive<c10::TensorImpl>(
      c10::Storage(adopt(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(face_storage))), kDense,
      impl->dtype());
  copy_geometry(result.get(), impl);
  bytes_ += static_cast<double>(impl->numel()) * static_cast<double>(impl->itemsize());
  return at::Tensor(std::move(result));
}

// The kernel may have given an out= operand another shape, or another storage.
void KernelCall::settle_geometry(Operand& operand) {
  at::TensorImpl* tensor = operand.tensor.unsafeGetTensorImpl();
  const at::TensorImpl* face = operand.face.unsafeGetTensorImpl();
  c10::StorageImpl* face_storage = face->unsafe_storage().unsafeGetStorageImpl();
  if (storage_of_face(face_storage) == nullptr) {
    tensor->set_storage_keep_dtype(
        c10::Storage(adopt(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(face_storage))));
  }
  if (!same_geometry(tensor, face)) copy_geometry(tensor, face);
}

// Moves memory that a kernel put in place of an operand's, and memory of new results. The faces of operands
// are gone by now, so a face's storage that is still shared has escaped (I12).
void KernelCall::settle_storages() {
  const c10::Device device(c10::kHPU, index_);
  for (Lent& lent : lent_) {
    if (lent.face->_mutable_data_ptr_no_checks().get() == lent.data) continue;
    lent.storage->set_nbytes(lent.face->nbytes());
    lent.storage->set_data_ptr_noswap(take_memory(lent.face, device));
  }
  for (Adopted& adopted : adopted_) {
    adopted.storage->set_nbytes(adopted.face->nbytes());
    void* data = adopted.face->_mutable_data_ptr_no_checks().get();
    adopted.storage->set_data_ptr_noswap(take_memory(adopted.face, device));
    // Memory from elsewhere (a worker thread's, a file's) is not the accelerator's, so it must not be
    // poisoned.
    const bool ours =
        allocation_of(adopted.storage->data_ptr()) != nullptr || accelerator(index_).contains(data);
    if (ours) written_.push_back({data, adopted.storage->nbytes()});
  }
}

// Faces without bytes: resizes operands whose storage the kernel resized.
void KernelCall::settle_sizes() {
  for (const Lent& lent : lent_) {
    if (lent.face->nbytes() != lent.storage->nbytes()) resize_storage(*lent.storage, lent.face->nbytes());
  }
}

void KernelCall::add_range(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return;
  const auto& storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
  auto* start = static_cast<std::byte*>(const_cast<void*>(storage.data()));
  const size_t item = tensor.itemsize();
  const auto offset = static_cast<size_t>(tensor.storage_offset()) * item;
  written_.push_back(
      {start + offset, at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), item)});
}

void KernelCall::computed() {
  armed_.reset();
  for (Operand& operand : operands_) {
    if (operand.written) settle_geometry(operand);
  }
  if (faces_ == Faces::shapes) settle_sizes();
  TORCH_CHECK(!faults::injected(faults::Fault::late_kernel), faults::message("a kernel that has written"));
}

namespace {
thread_local int at_its_rates = 0;
}  // namespace

AtItsRates::AtItsRates() { ++at_its_rates; }
AtItsRates::~AtItsRates() { --at_its_rates; }

void KernelCall::end(cost::KernelCost kernel, std::string_view op) noexcept {
  running_ = false;
  armed_.reset();
  below_.reset();
  for (Operand& operand : operands_) operand.face.reset();
  if (faces_ == Faces::bytes) settle_storages();
  for (const Operand& operand : operands_) {
    if (operand.written) add_range(operand.tensor);
  }
  kernel.bytes = bytes_;
  if (const auto& truth = accelerator(index_).options().truth; truth && at_its_rates == 0)
    kernel.slower = truth->slower(op, kernel);
  accelerator(index_).end_kernel(queue_, {written_.data(), written_.size()}, kernel);
  note_kernel(kernel);
}

}  // namespace innkeeper::torch_layer::sim_backend
