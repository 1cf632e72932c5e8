// The floor under bench/overhead.py: the least cost of an operator on any separate device, with any engine.
//
// bench_floor::fresh has a kernel for the CPU that returns a fresh tensor. Its kernel for the managed device
// holds no operand, calls no engine and computes nothing. It calls the CPU's kernel without the dispatcher's
// search, and wraps the result in a storage and a tensor of its own. The difference between the two is the
// second dispatch and the second tensor.
//
// overhead.py builds it, because it needs only PyTorch's headers.
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

namespace {

at::Tensor fresh_on_cpu(const at::Tensor& like) {
  return at::detail::empty_cpu(like.sizes(), like.scalar_type(), /*pin_memory=*/false, std::nullopt);
}

void release(void* storage) { c10::raw::intrusive_ptr::decref(static_cast<c10::StorageImpl*>(storage)); }

at::Tensor fresh_on_device(const at::Tensor& like) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("bench_floor::fresh", "")
                             .typed<at::Tensor(const at::Tensor&)>();
  static const at::Tensor& operand = *new at::Tensor(fresh_on_cpu(like));
  at::Tensor real;
  {
    const c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                                   c10::autocast_dispatch_keyset);
    real = op.redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), operand);
  }
  c10::Storage held = real.storage();
  const size_t size = held.nbytes();
  void* address = held.mutable_data();
  void* kept = held.unsafeReleaseStorageImpl();
  auto handle = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), size,
                                                      c10::DataPtr(address, kept, &release, like.device()),
                                                      /*allocator=*/nullptr, /*resizable=*/false);
  auto made = c10::make_intrusive<c10::TensorImpl>(
      c10::Storage(std::move(handle)), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), real.dtype());
  made->set_sizes_and_strides(real.sizes(), real.strides(), real.storage_offset());
  return at::Tensor(std::move(made));
}

}  // namespace

TORCH_LIBRARY(bench_floor, m) { m.def("fresh(Tensor like) -> Tensor"); }
TORCH_LIBRARY_IMPL(bench_floor, CPU, m) { m.impl("fresh", &fresh_on_cpu); }
TORCH_LIBRARY_IMPL(bench_floor, PrivateUse1, m) { m.impl("fresh", &fresh_on_device); }
