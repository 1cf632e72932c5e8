#include "torch/sim/factories.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>

#include "torch/sim/allocator.h"
#include "torch/sim/current.h"
#include "torch/sim/kernel_call.h"
#include "torch/sim/sim_backend.h"
#include "torch/sim/storage_resize.h"

namespace innkeeper::torch_layer::sim_backend {

void resize_storage(c10::StorageImpl& storage, size_t size) {
  TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
  const c10::DeviceIndex index = storage.device().index();
  const size_t kept = std::min(size, storage.nbytes());
  c10::DataPtr memory = allocate(index, size, c10::Device(c10::kHPU, index));
  if (kept > 0) {
    const sim::QueueIndex queue = current_queue(index);
    accelerator(index).copy(queue, memory.get(), storage.data(), kept, sim::Accelerator::Direction::within);
    device_allocator().recordStream(storage.data_ptr(),
                                    c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kHPU, index), queue));
  }
  storage.set_data_ptr_noswap(std::move(memory));
  storage.set_nbytes(size);
}

namespace {

using at::Tensor;
using std::optional;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::HPU);

void check_options(optional<c10::Layout> layout, optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(!layout.has_value() || *layout == c10::kStrided,
                              "simulated accelerators hold dense tensors only, not ",
                              layout.value_or(c10::kStrided));
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
}

Tensor empty(c10::IntArrayRef size, optional<c10::ScalarType> dtype, optional<c10::Layout> layout,
             optional<c10::Device> device, optional<bool> pin_memory, optional<c10::MemoryFormat> format) {
  check_options(layout, pin_memory);
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(size, &device_allocator(), kKeys, c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, optional<c10::ScalarType> dtype,
                     optional<c10::Layout> layout, optional<c10::Device> device, optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(size, stride, &device_allocator(), kKeys,
                                           c10::dtype_or_default(dtype));
}

// Zeros without memory, for gradients that are known to be zero.
Tensor efficient_zero_tensor(c10::IntArrayRef size, optional<c10::ScalarType> dtype,
                             optional<c10::Layout> layout, optional<c10::Device> device,
                             optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  const c10::DeviceIndex index =
      device.has_value() && device->has_index() ? device->index() : current_device();
  at::native::ZeroTensorAllocator no_memory(c10::Device(c10::kHPU, index));
  return at::detail::empty_generic(size, &no_memory,
                                   kKeys | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor),
                                   c10::dtype_or_default(dtype), std::nullopt);
}

void grow_storage(const Tensor& self) {
  if (self.numel() == 0) return;
  const size_t needed = at::detail::computeStorageNbytes(self.sizes(), self.strides(), self.itemsize(),
                                                         static_cast<size_t>(self.storage_offset()));
  c10::StorageImpl& storage = *self.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  if (needed > storage.nbytes()) resize_storage(storage, needed);
}

const Tensor& resize_(const Tensor& self, c10::IntArrayRef size, optional<c10::MemoryFormat> format) {
  at::TensorImpl* impl = self.unsafeGetTensorImpl();
  if (self.sizes() != size) impl->generic_set_sizes_contiguous(size);
  if (format.has_value()) {
    TORCH_CHECK(*format != c10::MemoryFormat::Preserve, "Unsupported memory format", *format);
    impl->empty_tensor_restride(*format);
  }
  grow_storage(self);
  return self;
}

Tensor& set_source_storage(Tensor& self, at::Storage source, int64_t offset, c10::IntArrayRef size,
                           c10::IntArrayRef stride) {
  at::native::checkSetStorage(self, std::move(source), offset, size, stride);
  at::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(offset);
  if (stride.data() != nullptr) {
    impl->set_sizes_and_strides(size, stride);
  } else {
    impl->set_sizes_contiguous(size);
  }
  grow_storage(self);
  return self;
}

Tensor& set_source_storage_whole(Tensor& self, at::Storage source) {
  const auto count = static_cast<int64_t>(source.nbytes() / self.itemsize());
  return set_source_storage(self, std::move(source), 0, {count}, {});
}

Tensor& set_source_tensor(Tensor& self, const Tensor& source) {
  if (self.unsafeGetTensorImpl() == source.unsafeGetTensorImpl()) return self;
  return set_source_storage(self, source.storage(), source.storage_offset(), source.sizes(),
                            source.strides());
}

Tensor& set_nothing(Tensor& self) {
  const c10::Device device = self.device();
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0,
                                                       c10::DataPtr(nullptr, device), &device_allocator(),
                                                       /*resizable=*/true);
  return set_source_storage(self, at::Storage(std::move(storage)), 0, {0}, {});
}

// Makes the host wait, and reads the number.
at::Scalar local_scalar_dense(const Tensor& self) {
  KernelCall call(Faces::bytes);
  const Tensor& face = call.borrow(self, 0, false);
  call.begin(/*host_result=*/true);
  at::Scalar value = at::native::_local_scalar_dense_cpu(face);
  call.computed();
  call.end({}, "aten::fill_");
  return value;
}

// There is no copy-on-write: the memory of a storage has one owner here.
Tensor lazy_clone(const Tensor& self) { return at::clone(self); }

void record_stream(Tensor& self, at::Stream stream) {
  device_allocator().recordStream(self.storage().data_ptr(), stream);
}

}  // namespace

void register_factories(torch::Library& library) {
  library.impl("empty.memory_format", TORCH_FN(empty));
  library.impl("empty_strided", TORCH_FN(empty_strided));
  library.impl("_efficientzerotensor", TORCH_FN(efficient_zero_tensor));
  library.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("_unsafe_view", TORCH_FN(at::native::view));
  library.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  library.impl("unfold", TORCH_FN(at::native::unfold));
  library.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  library.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  library.impl("resize_", TORCH_FN(resize_));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(set_source_storage));
  library.impl("set_.source_Storage", TORCH_FN(set_source_storage_whole));
  library.impl("set_.source_Tensor", TORCH_FN(set_source_tensor));
  library.impl("set_", TORCH_FN(set_nothing));
  library.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
  library.impl("_lazy_clone", TORCH_FN(lazy_clone));
  library.impl("record_stream", TORCH_FN(record_stream));
}

}  // namespace innkeeper::torch_layer::sim_backend
