// The name `cuda` for the managed device, in PyTorch's C++ and so in Python.
//
// PyTorch reads a device's name in one function of libc10 and writes it in another. Here both are replaced in
// PyTorch's own libraries: `cuda:1` is read as `managed:1`, and each managed device shows itself as `cuda`,
// in error messages too. `managed` is still read. Dispatch keys and the registered name of the back end stay
// as they are, but an error's text says CUDA in their place when PyTorch's binding raises it in Python.
// Libraries of others, which are not changed, still read `cuda` as CUDA's own device.
#pragma once

#include "innkeeper/export.h"

namespace innkeeper::torch_layer {

// Replaces them for the rest of the process. Throws c10::NotImplementedError if this build of PyTorch calls
// them otherwise than by the slots of its libraries, where a name would be read in two ways.
IK_EXPORT void call_devices_cuda();

// Whether that has been done: the process runs a program made for CUDA.
bool are_devices_called_cuda();

}  // namespace innkeeper::torch_layer
