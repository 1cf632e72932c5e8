// Kernels that a compiler wrote for the host (torch.compile with Inductor), as an operator. As for any other
// operator, the engine makes the operands resident, chooses the node, and counts the written operands as
// written. So a compiled model need not fit.
//
//   innkeeper::compiled(Tensor[] read, Tensor(a!)[] written, int kernel, int[] sizes) -> ()
//
// `kernel`: the address of a CompiledKernel, which lives as long as the process. `sizes`: its size arguments.
// Strides and offsets are the tensors'; the kernel was written for them.
#pragma once

#include <cstdint>

namespace innkeeper::torch_layer {

// `data`: the address of each tensor's data, read tensors first.
using CompiledKernel = void (*)(void* const* data, const int64_t* sizes);

void register_compiled();

}  // namespace innkeeper::torch_layer
