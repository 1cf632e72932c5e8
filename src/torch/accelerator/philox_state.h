// The whole state of a GPU's random generator.
#pragma once

#include <cstdint>

namespace innkeeper::torch_layer {

struct PhiloxState {
  uint64_t seed = 0;
  uint64_t offset = 0;
};

}  // namespace innkeeper::torch_layer
