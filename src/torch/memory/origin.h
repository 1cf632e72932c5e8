// The recorded call from which a block's bytes can be recomputed; stored with the block (handle.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <c10/core/ScalarType.h>

namespace innkeeper::torch_layer {

class RecordedOperator;  // operator/recorded_operator.h

struct Origin {
  std::shared_ptr<const RecordedOperator> call;
  size_t result = 0;    // Index of the block among the call's results.
  uint32_t writes = 0;  // Block::writes at the time of the call; a later write makes the call useless.
  c10::ScalarType dtype = c10::ScalarType::Undefined;  // Type of the result.
};

}  // namespace innkeeper::torch_layer
