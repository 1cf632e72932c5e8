// Managed copies of CPU tensors that operators have moved (operator/mixed_move.h), kept so that a tensor that
// does not change is moved once: a mask, class weights, a table of positions.
//
// A copy counts while its tensor's bytes are what they were, by their checksum: a version counter does not
// see what NumPy and other processes write. It goes when the CPU tensor's storage does, when others were used
// later and there is no room, and when what is kept would be more than a sixteenth of all nodes' budgets.
// Large tensors, such as a batch, are kept from their second move on: most are moved once.
//
// Thread safety: all functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace innkeeper::torch_layer {

// A copy of the CPU tensor on the device: the kept one, or what `move` makes. Nobody may write to it or hand
// it out.
at::Tensor moved_copy(const at::Tensor& cpu_tensor, c10::Device device,
                      const std::function<at::Tensor()>& move);

void forget_moved_copies();
// Lets go of the copies whose CPU tensors are gone: before somebody counts what is in use.
void forget_copies_of_dead_tensors();

}  // namespace innkeeper::torch_layer
