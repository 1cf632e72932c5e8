// Operators for which the managed device has its own kernels, beside the boxed function (fallback.h). They
// make tensors or change a tensor object's view, are composed by PyTorch by the device's type, or are hot and
// need no boxing.
//
// They are registered by calls, not by TORCH_LIBRARY_IMPL. The boxed function is registered for the operators
// that have no kernel by then, and the order of a library's static initializers is not defined.
#pragma once

#include <torch/library.h>

#include "torch/memory/handle.h"

namespace innkeeper::torch_layer {

inline constexpr c10::DispatchKey kManagedAutogradKey = c10::DispatchKey::AutogradPrivateUse1;

// Registers kernels of a namespace ("_": fallbacks) for `key`. Never unregistered: managed tensors may
// outlive every other object.
torch::Library& kernels_for(const char* name_space, c10::DispatchKey key);

void register_factories();         // factories.cc
void register_small_operators();   // misc.cc
void register_hot_operators();     // hot_operators.cc
void register_one_step();          // fused_factories.cc
void register_zero_tensors();      // zero_tensors.cc
void register_random_operators();  // random_ops.cc
void register_convolutions();      // convolution.cc
void register_batch_norm();        // batch_norm.cc
void register_group_norm();        // group_norm.cc
void register_sync_batch_norm();   // sync_batch_norm.cc
void register_rms_norm();          // rms_norm.cc
void register_attention();         // attention.cc
void register_rnns();              // rnn.cc
void register_autocast();          // autocast.cc
void register_parts();             // composed_parts.cc
void register_composed_moves();    // composed_moves.cc
void register_quantized();         // quantized.cc

}  // namespace innkeeper::torch_layer
