// Shapes of an operator's results, without numbers: runs the operator on meta tensors.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <vector>

namespace fake_cuda {

// Results on `device`: new tensors, or the arguments that the operator writes, resized as it would. None
// where shapes depend on the numbers (nonzero), or the operator knows no meta tensors.
std::optional<std::vector<c10::IValue>> results_by_shape(const c10::OperatorHandle& op,
                                                         const std::vector<c10::IValue>& arguments,
                                                         c10::Device device);

}  // namespace fake_cuda
