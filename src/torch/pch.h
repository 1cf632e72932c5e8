// Precompiled for every file of src/torch: PyTorch's headers take most of their compile time. Files include
// what they use all the same, so that they compile without it.
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
