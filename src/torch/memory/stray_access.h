// Explains a trap. A program that reads or writes through a managed tensor's data pointer (ctypes, an
// extension, its own kernel) traps, because the bytes may lie on any node. The process ends as it would have,
// but first prints the reason and the correct call.
#pragma once

#include "torch/memory/address_space.h"

namespace innkeeper::torch_layer {

// Installs a handler of SIGSEGV in front of the present one, which still gets every trap. Requires: called
// once in a process, for a space that is never destroyed.
void explain_stray_accesses(AddressSpace& space);

}  // namespace innkeeper::torch_layer
