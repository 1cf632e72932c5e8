// The kinds of accelerators that this build has.
#pragma once

namespace innkeeper::torch_layer {

// Once, when the library is loaded.
void add_backends();

}  // namespace innkeeper::torch_layer
