// INNKEEPER_STRESS=hash: hashes the operands that an operator does not write, before and after it runs. If a
// kernel writes an operand that its schema calls read-only, the next eviction loses that write (hidden
// writes, signature.cc).
//
// For tests and for finding bugs: each operand is copied to the host twice.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace innkeeper::torch_layer {

class ReadCheck {
 public:
  // `real`: an operand as the kernel sees it.
  void before(const at::Tensor& real);
  // Throws with the operator's name if any operand's storage has changed.
  void after(std::string_view op) const;

 private:
  struct Seen {
    at::Tensor real;
    uint64_t hash;
  };
  std::vector<Seen> seen_;
};

}  // namespace innkeeper::torch_layer
