#include "torch/kernels/compiled.h"

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <bit>
#include <vector>

namespace innkeeper::torch_layer {
namespace {

void run_compiled(at::TensorList read, at::TensorList written, int64_t kernel, at::IntArrayRef sizes) {
  std::vector<void*> data;
  data.reserve(read.size() + written.size());
  for (const at::Tensor& tensor : read) data.push_back(const_cast<void*>(tensor.const_data_ptr()));
  for (const at::Tensor& tensor : written) data.push_back(tensor.mutable_data_ptr());
  std::bit_cast<CompiledKernel>(kernel)(data.data(), sizes.data());
}

void compute_no_shapes(at::TensorList, at::TensorList, int64_t, at::IntArrayRef) {}

}  // namespace

void register_compiled() {
  static auto& library = *new torch::Library(torch::Library::FRAGMENT, "innkeeper", std::nullopt,
                                             "innkeeper: compiled kernels", 0);
  library.def("compiled(Tensor[] read, Tensor(a!)[] written, int kernel, int[] sizes) -> ()");
  library.impl("compiled", c10::DispatchKey::CPU, run_compiled);
  library.impl("compiled", c10::DispatchKey::Meta, compute_no_shapes);
}

}  // namespace innkeeper::torch_layer
