// The first half of KernelCall: faces of operands.
#include <c10/core/CPUAllocator.h>
#include <c10/core/DispatchKeySet.h>

#include "torch/process/faults.h"
#include "torch/sim/allocator.h"
#include "torch/sim/current.h"
#include "torch/sim/kernel_call.h"
#include "torch/sim/sim_backend.h"

namespace innkeeper::torch_layer::sim_backend {
namespace {

// Above this number of storages, a linear search costs more than a hash table (foreach optimizers have
// hundreds).
constexpr size_t kLinearSearch = 12;

// Dispatch keys that are excluded while a kernel runs: neither autograd records a kernel's calls nor autocast
// casts their arguments.
constexpr c10::DispatchKeySet kAboveKernels =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;

void release_storage(void* context) {
  c10::intrusive_ptr<c10::StorageImpl>::reclaim(static_cast<c10::StorageImpl*>(context));
}

}  // namespace

c10::intrusive_ptr<c10::StorageImpl> KernelCall::make_face(c10::StorageImpl* storage) const {
  void* data = storage->_mutable_data_ptr_no_checks().get();
  TORCH_CHECK(data != nullptr || storage->nbytes() == 0, "a tensor on ", storage->device(), " of ",
              storage->nbytes(), " bytes has no memory: it was evicted while an operator uses it");
  auto kept = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage);
  const bool bytes = faces_ == Faces::bytes;
  const c10::Device device(bytes ? c10::kCPU : c10::kMeta);
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), storage->nbytes(),
      c10::DataPtr(bytes ? data : nullptr, kept.release(), &release_storage, device),
      c10::GetAllocator(device.type()), storage->resizable());
}

const c10::intrusive_ptr<c10::StorageImpl>& KernelCall::lend(c10::StorageImpl* storage) {
  if (lent_.size() <= kLinearSearch) {
    for (const Lent& lent : lent_) {
      if (lent.storage.get() == storage) return lent.face;
    }
  } else {
    if (by_storage_.empty()) {
      for (size_t i = 0; i < lent_.size(); ++i) {
        by_storage_[lent_[i].storage.get()] = i;
        by_storage_[lent_[i].face.get()] = i;
      }
    }
    if (auto found = by_storage_.find(storage); found != by_storage_.end()) return lent_[found->second].face;
  }
  auto face = make_face(storage);
  void* data = face->_mutable_data_ptr_no_checks().get();
  if (!by_storage_.empty()) {
    by_storage_[storage] = lent_.size();
    by_storage_[face.get()] = lent_.size();
  }
  lent_.push_back({c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage), std::move(face), data});
  return lent_.back().face;
}

const at::Tensor& KernelCall::borrow(at::Tensor tensor, size_t argument, bool written) {
  const at::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  TORCH_CHECK_NOT_IMPLEMENTED(impl->layout() == c10::kStrided && !impl->is_quantized(),
                              "simulated accelerators hold dense tensors only, not ", impl->layout(), " of ",
                              tensor.scalar_type());
  const c10::DeviceIndex index = impl->device().index();
  if (index_ < 0) index_ = index;
  TORCH_CHECK(index == index_,
              "Expected all tensors to be on the same device, but found at least two devices, hpu:",
              static_cast<int>(index_), " and hpu:", static_cast<int>(index), "!");
  bytes_ += static_cast<double>(impl->numel()) * static_cast<double>(impl->itemsize());
  // One tensor at two positions gets one face: kernels compare identities to see whether an output is also an
  // input.
  for (size_t i = 0; i < operands_.size() && operands_.size() <= kLinearSearch; ++i) {
    if (!operands_[i].tensor.is_same(tensor)) continue;
    at::Tensor face = operands_[i].face;
    operands_.push_back({std::move(tensor), std::move(face), static_cast<uint16_t>(argument), written});
    return operands_.back().face;
  }
  auto face = c10::make_intrusive<c10::TensorImpl>(
      c10::Storage(lend(impl->unsafe_storage().unsafeGetStorageImpl())),
      c10::DispatchKeySet(faces_ == Faces::bytes ? c10::DispatchKey::CPU : c10::DispatchKey::Meta),
      impl->dtype());
  face->set_sizes_and_strides(impl->sizes(), impl->strides(), impl->storage_offset());
  if (tensor.is_conj()) face->_set_conj(true);
  if (tensor.is_neg()) face->_set_neg(true);
  if (impl->is_wrapped_number()) face->set_wrapped_number(true);
  operands_.push_back(
      {std::move(tensor), at::Tensor(std::move(face)), static_cast<uint16_t>(argument), written});
  return operands_.back().face;
}

void KernelCall::begin(bool host_result) {
  TORCH_INTERNAL_ASSERT(index_ >= 0, "a kernel of no accelerator");
  TORCH_CHECK(!faults::injected(faults::Fault::kernel), faults::message("a kernel before it computes"));
  queue_ = current_queue(index_);
  sim::Accelerator& device = accelerator(index_);
  if (host_result) device.synchronize(queue_);
  device.begin_kernel(queue_);
  running_ = true;
  below_.emplace(kAboveKernels);
  if (has_data()) armed_.emplace(&allocate_for_cpu, index_);
}

KernelCall::~KernelCall() {
  if (running_) end({}, {});
}

}  // namespace innkeeper::torch_layer::sim_backend
