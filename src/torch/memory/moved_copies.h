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

// Returns the kept copy of the CPU tensor on the device, or else calls `move` and returns its result. The
// caller only reads it, and does not return it to the program.
at::Tensor moved_copy(const at::Tensor& cpu_tensor, c10::Device device,
                      const std::function<at::Tensor()>& move);

// Frees all copies.
void forget_moved_copies();
// Frees the copies of CPU tensors that no longer exist, so that statistics do not count them.
void forget_copies_of_dead_tensors();

}  // namespace innkeeper::torch_layer
