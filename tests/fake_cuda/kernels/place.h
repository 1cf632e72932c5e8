// A tensor as work on a stream sees it: an address and a shape, which own nothing. Like a kernel's arguments:
// if another tensor gets the memory before the work runs, the work reads and writes that tensor's bytes.
#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace fake_cuda {

class Place {
 public:
  explicit Place(const at::Tensor& tensor);  // Requires: the tensor is on a GPU.
  // The GPU's bytes as a tensor of the host's, while work runs.
  at::Tensor open() const;

 private:
  void* data_;
  std::vector<int64_t> sizes_, strides_;
  at::ScalarType type_;
  bool conj_, neg_;
  size_t bytes_;
};

}  // namespace fake_cuda
