// Managed copies of CPU tensors that operators have moved (operator/mixed_move.h), kept so that an unchanging
// tensor is moved once: a mask, class weights, a table of positions.
//
// A copy is valid while the checksum of its tensor's bytes is the same. A version counter would not do,
// because it misses writes by NumPy and by other processes. A copy is freed with the CPU tensor's storage.
// The least recently used copies are freed when all copies together exceed 64 MiB, a sixteenth of all nodes'
// budgets, or 128 entries. Large tensors, such as a batch, are kept from their second move on, because most
// of them are moved only once.
//
// Thread safety: all functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace innkeeper::torch_layer {

// Returns the kept copy of the CPU tensor on the device, or else calls `move` and returns its result.
// Requires: the caller only reads the result, and does not return it to the program.
at::Tensor moved_copy(const at::Tensor& cpu_tensor, c10::Device device,
                      const std::function<at::Tensor()>& move);

// Frees all copies.
void forget_moved_copies();
// Frees the copies of CPU tensors that no longer exist, so that statistics do not count them.
void forget_copies_of_dead_tensors();

}  // namespace innkeeper::torch_layer
