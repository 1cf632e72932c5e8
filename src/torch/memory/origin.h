// How the bytes of a block can be computed again: kept with it (handle.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <c10/core/ScalarType.h>

namespace innkeeper::torch_layer {

class RecordedOperator;  // operator/recorded_operator.h

struct Origin {
  std::shared_ptr<const RecordedOperator> call;
  size_t result = 0;                                   // of the call
  uint32_t writes = 0;                                 // that the block had seen then (Block::writes)
  c10::ScalarType dtype = c10::ScalarType::Undefined;  // of the result
};

}  // namespace innkeeper::torch_layer
