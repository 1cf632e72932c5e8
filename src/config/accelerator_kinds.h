// The kinds of accelerators that INNKEEPER_NODES can name. A new kind is one line here; what the torch layer
// needs of it is a Backend (src/torch/accelerator/backend.h).
#pragma once

#include <string_view>

namespace innkeeper {

struct AcceleratorKind {
  std::string_view name;  // Prefix of its nodes' names: "cuda" of "cuda:0".
  // A simulated kind is written NAME:[COUNTx]SIZE. Its memory is the host's, and INNKEEPER_SIM holds its
  // options. Any other kind is written NAME[:INDEX][:SIZE]; NAME alone means all of them.
  bool simulated = false;
  std::string_view library = {};  // Name of the library that a build may lack; empty if it needs none.
};

inline constexpr AcceleratorKind kAcceleratorKinds[] = {
    {.name = "cuda", .library = "CUDA"},
    {.name = "sim", .simulated = true},
};

}  // namespace innkeeper
