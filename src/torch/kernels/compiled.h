// Kernels that a compiler wrote for the host (torch.compile with Inductor), as an operator. So a compiled
// kernel's operands are made resident, its node is chosen, and what it wrote counts, as for any other; and a
// compiled model need not fit.
//
//   innkeeper::compiled(Tensor[] read, Tensor(a!)[] written, int kernel, int[] sizes) -> ()
//
// `kernel`: the address of a CompiledKernel, which lives as long as the process. `sizes`: what it asks for.
// Strides and offsets are the tensors'; the kernel was written for them.
#pragma once

#include <cstdint>

namespace innkeeper::torch_layer {

// `data`: where each tensor begins, those that are read first.
using CompiledKernel = void (*)(void* const* data, const int64_t* sizes);

void register_compiled();

}  // namespace innkeeper::torch_layer
