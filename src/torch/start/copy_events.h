// The engine's copies in PyTorch's profiler: events "innkeeper::fetch host to sim:0", "innkeeper::write_back
// sim:0 to host", "innkeeper::between sim:0 to sim:1". An event stands under the operator that caused the
// copy, and lasts while a thread puts the copy on its queue. Its input (record_shapes) is the number of
// bytes. On a real GPU, the copy itself stands in the GPU's rows.
#pragma once

#include <functional>

#include "base/types.h"
#include "device/device_api.h"

namespace innkeeper::torch_layer {

// The engine's CopyWatch.
void record_copy(const Device& from, const Device& to, Bytes size, const std::function<void()>& copy);

}  // namespace innkeeper::torch_layer
