// Precompiled header for the torch layer's C++ tests and for tools/check_torch.sh, which compile files one by
// one: PyTorch's headers take most of the compile time. Each file still includes every header that it uses.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>
