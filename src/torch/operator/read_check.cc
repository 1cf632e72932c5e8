#include "torch/operator/read_check.h"

#include <ATen/ATen.h>

#include "device/checksum.h"
#include "torch/memory/cpu_allocator.h"

namespace innkeeper::torch_layer {
namespace {

// Hash of all bytes of the storage, also of those that the tensor does not show.
uint64_t hash_of(const at::Tensor& real) {
  const DisarmedCpu disarmed;
  const c10::Storage& storage = real.storage();
  const auto size = static_cast<int64_t>(storage.nbytes());
  if (size == 0) return 0;
  auto bytes = c10::make_intrusive<c10::TensorImpl>(c10::Storage(storage), real.key_set(),
                                                    caffe2::TypeMeta::Make<uint8_t>());
  bytes->_set_conj(false);
  bytes->_set_neg(false);
  bytes->set_sizes_contiguous({size});
  const at::Tensor on_host = at::Tensor(std::move(bytes)).to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
  return checksum(on_host.const_data_ptr(), static_cast<size_t>(size));
}

}  // namespace

void ReadCheck::before(const at::Tensor& real) { seen_.push_back({real, hash_of(real)}); }

void ReadCheck::after(std::string_view op) const {
  for (const Seen& seen : seen_) {
    TORCH_CHECK(hash_of(seen.real) == seen.hash, op,
                " wrote an operand that its schema calls read-only (shape ", seen.real.sizes(), ", ",
                seen.real.dtype(), "): it belongs on the list of hidden writes in signature.cc");
  }
}

}  // namespace innkeeper::torch_layer
