// A program that follows a managed tensor's data pointer (ctypes, an extension, its own kernel) traps:
// the address stands for bytes that may lie anywhere. The process ends as it would have, and says before why,
// and what to write instead.
#pragma once

#include "torch/memory/address_space.h"

namespace innkeeper::torch_layer {

// Puts a handler of SIGSEGV before the one that is there, which every trap reaches. Once a process, for a
// space that is never destroyed.
void explain_stray_accesses(AddressSpace& space);

}  // namespace innkeeper::torch_layer
