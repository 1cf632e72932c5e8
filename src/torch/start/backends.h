// The kinds of accelerators of this build.
#pragma once

namespace innkeeper::torch_layer {

// Called when the library is loaded. Further calls do nothing.
void add_backends();

}  // namespace innkeeper::torch_layer
