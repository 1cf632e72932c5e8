// The kinds of accelerators that this build has.
#pragma once

namespace innkeeper::torch_layer {

// When the library is loaded. Once more does nothing.
void add_backends();

}  // namespace innkeeper::torch_layer
