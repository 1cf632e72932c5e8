// Operators that make tensors or change a tensor object's view, and touch no bytes: plain LibTorch over
// handles.
#include <ATen/EmptyTensor.h>
#include <ATen/NativeFunctions.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/native/TensorFactories.h>

#include "torch/kernels/copy.h"
#include "torch/kernels/custom_kernels.h"
#include "torch/memory/device_allocator.h"
#include "torch/memory/device_index.h"
#include "torch/memory/handle.h"

namespace innkeeper::torch_layer {
namespace {

using at::Tensor;

const c10::DispatchKeySet kKeys(kManagedKey);

void check_device(const std::optional<at::Device>& device) {
  if (has_device_per_node()) return;  // index_of() checks it.
  TORCH_CHECK(!device.has_value() || !device->has_index() || device->index() == 0, "invalid device ", *device,
              ": there is one managed device, managed:0, whatever number of nodes it has; innkeeper.on(node) "
              "chooses one");
}

void check_dense(const char* name, std::optional<at::Layout> layout, const std::optional<at::Device>& device,
                 std::optional<bool> pin_memory) {
  check_device(device);
  TORCH_CHECK(c10::layout_or_default(layout) == at::kStrided, name,
              ": managed tensors are dense; got layout ", *layout);
  TORCH_CHECK(!c10::pinned_memory_or_default(pin_memory), "Only dense CPU tensors can be pinned");
}

// torch.use_deterministic_algorithms: uninitialized memory is filled.
bool fills_uninitialized() {
  const at::Context& context = at::globalContext();
  return context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory();
}

Tensor uninitialized(Tensor made) {
  if (fills_uninitialized()) [[unlikely]]
    at::native::fill_empty_deterministic_(made);
  return made;
}

Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
             std::optional<at::Device> device, std::optional<bool> pin_memory,
             std::optional<at::MemoryFormat> format) {
  check_dense("empty", layout, device, pin_memory);
  const AtIndex at(index_of(device));
  return uninitialized(at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), handle_allocator(), kKeys,
                                                 c10::dtype_or_default(dtype), format));
}

Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                     std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                     std::optional<at::Device> device, std::optional<bool> pin_memory) {
  check_device(device);
  const AtIndex at(index_of(device));
  TORCH_CHECK(!c10::pinned_memory_or_default(pin_memory), "Only dense CPU tensors can be pinned");
  return uninitialized(at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size),
                                                         C10_AS_INTARRAYREF_SLOW(stride), handle_allocator(),
                                                         kKeys, c10::dtype_or_default(dtype)));
}

// Zeros without a block, for gradients that are known to be zero: PyTorch's kernels for such tensors make
// real zeros when they read them.
Tensor efficient_zero(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype,
                      std::optional<at::Layout> layout, std::optional<at::Device> device,
                      std::optional<bool> pin_memory) {
  check_dense("_efficientzerotensor", layout, device, pin_memory);
  at::native::ZeroTensorAllocator no_memory(device_at(index_of(device)));
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &no_memory,
                                   c10::DispatchKeySet({kManagedKey, c10::DispatchKey::ZeroTensor}),
                                   c10::dtype_or_default(dtype), std::nullopt);
}

Tensor as_strided(const Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                  std::optional<c10::SymInt> offset) {
  return at::native::as_strided_tensorimpl(
      self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
      offset.has_value() ? std::optional<int64_t>(offset->expect_int()) : std::nullopt);
}

Tensor view(const Tensor& self, c10::SymIntArrayRef size) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
}

Tensor reshape_alias(const Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}

Tensor unfold(const Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  return at::native::unfold(self, dimension, size, step);
}

// Makes the storage long enough for the tensor's present view.
void cover(const Tensor& self) {
  c10::TensorImpl& impl = *self.unsafeGetTensorImpl();
  if (impl.numel() == 0) return;
  const size_t needed = at::detail::computeStorageNbytes(impl.sizes(), impl.strides(), impl.itemsize(),
                                                         static_cast<size_t>(impl.storage_offset()));
  if (needed > impl.unsafe_storage().nbytes()) resize_storage(impl.unsafe_storage(), needed);
}

// Changes a tensor's view, and makes its storage long enough for it. If that fails (a pin forbids it, memory
// runs out), the tensor keeps its view.
template <class Change>
void show(const Tensor& self, const Change& change) {
  c10::TensorImpl& impl = *self.unsafeGetTensorImpl();
  const c10::Storage storage = impl.storage();
  const c10::DimVector sizes(impl.sizes());
  const c10::DimVector strides(impl.strides());
  const int64_t offset = impl.storage_offset();
  try {
    change(impl);
    cover(self);
  } catch (...) {
    impl.set_storage_keep_dtype(storage);
    impl.set_storage_offset(offset);
    impl.set_sizes_and_strides(sizes, strides);
    throw;
  }
}

const Tensor& resize(const Tensor& self, c10::SymIntArrayRef size, std::optional<at::MemoryFormat> format) {
  const c10::IntArrayRef sizes = C10_AS_INTARRAYREF_SLOW(size);
  const auto bytes_before = static_cast<int64_t>(self.unsafeGetTensorImpl()->unsafe_storage().nbytes());
  show(self, [&](c10::TensorImpl& impl) {
    if (impl.sizes() != sizes) impl.set_sizes_contiguous(sizes);
    if (format.has_value()) {
      TORCH_CHECK(*format != at::MemoryFormat::Preserve, "Unsupported memory format ", *format);
      impl.empty_tensor_restride(*format);
    }
  });
  if (fills_uninitialized()) [[unlikely]]
    at::native::fill_resize_deterministic_(self, bytes_before);
  return self;
}

Tensor& set_storage_offset(Tensor& self, at::Storage source, c10::SymInt offset, c10::SymIntArrayRef size,
                           c10::SymIntArrayRef stride) {
  TORCH_CHECK(source.device() == self.device(), "Attempted to set the storage of a tensor on device \"",
              self.device(), "\" to a storage on different device \"", source.device(),
              "\".  This is no longer allowed; the devices must match.");
  const c10::IntArrayRef sizes = C10_AS_INTARRAYREF_SLOW(size);
  const c10::IntArrayRef strides = C10_AS_INTARRAYREF_SLOW(stride);
  TORCH_CHECK(offset >= 0, "Tensor: invalid storage offset ", offset);
  TORCH_CHECK(strides.empty() || strides.size() == sizes.size(), "set_: ", sizes.size(), " sizes but ",
              strides.size(), " strides");
  show(self, [&](c10::TensorImpl& impl) {
    impl.set_storage_keep_dtype(std::move(source));
    impl.set_storage_offset(offset.expect_int());
    if (strides.empty() && !sizes.empty()) {
      impl.set_sizes_contiguous(sizes);
    } else {
      impl.set_sizes_and_strides(sizes, strides);
    }
  });
  return self;
}

Tensor& set_storage(Tensor& self, at::Storage source) { return at::native::set_(self, std::move(source)); }

Tensor& set_tensor(Tensor& self, const Tensor& source) { return at::native::set_tensor_(self, source); }

Tensor& set_nothing(Tensor& self) {
  return set_storage_offset(self, at::Storage(make_handle(Bytes(0), self.device().index())), 0,
                            c10::SymIntArrayRef(c10::SymInt(0)), {});
}

bool is_set_to(const Tensor& self, const Tensor& other) {
  return self.storage().unsafeGetStorageImpl() == other.storage().unsafeGetStorageImpl() &&
         self.storage_offset() == other.storage_offset() && self.sizes() == other.sizes() &&
         self.strides() == other.strides();
}

}  // namespace

void register_factories() {
  torch::Library& m = kernels_for("aten", kManagedKey);
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_efficientzerotensor", &efficient_zero);
  m.impl("as_strided", &as_strided);
  m.impl("view", &view);
  m.impl("_unsafe_view", &view);  // linear() uses it on its product; it needs no kernel.
  m.impl("_reshape_alias", &reshape_alias);
  m.impl("unfold", &unfold);
  m.impl("view_as_real", &at::native::view_as_real);
  m.impl("view_as_complex", &at::native::view_as_complex);
  m.impl("resize_", &resize);
  m.impl("set_.source_Storage_storage_offset", &set_storage_offset);
  m.impl("set_.source_Storage", &set_storage);
  m.impl("set_.source_Tensor", &set_tensor);
  m.impl("set_", &set_nothing);
  m.impl("is_set_to", &is_set_to);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &read_scalar);
}

}  // namespace innkeeper::torch_layer
