// The name `cuda` for the managed device, in PyTorch's C++ and so in Python.
//
// PyTorch reads a device's name in one function of libc10 and writes it in another. This file replaces both
// in PyTorch's own libraries: `cuda:1` is read as `managed:1`, and each managed device is written as `cuda`,
// in error messages too. `managed` is still read. Dispatch keys and the registered name of the backend do not
// change. In the text of an error that PyTorch's binding raises in Python, CUDA stands in their place. Other
// parties' libraries are not changed, and still read `cuda` as CUDA's own device.
#pragma once

#include "innkeeper/export.h"

namespace innkeeper::torch_layer {

// Replaces them for the rest of the process. Throws c10::NotImplementedError if this build of PyTorch does
// not call them through the slots of its libraries, so that a name could be read in two ways.
IK_EXPORT void call_devices_cuda();

// Whether call_devices_cuda() has been called: the process runs a program made for CUDA.
bool are_devices_called_cuda();

}  // namespace innkeeper::torch_layer
