// Core's failures as PyTorch's exceptions: this is the edge.
#pragma once

#include <string_view>

#include "base/status.h"

namespace innkeeper::torch_layer {

// out_of_memory: torch.OutOfMemoryError; invalid_argument: ValueError; else RuntimeError. `what` is the
// operator or the function of the public interface; empty where the message names what was wrong itself.
[[noreturn]] void throw_status(const Status& status, std::string_view what);

inline void throw_if_error(const Status& status, std::string_view what) {
  if (!status.ok()) throw_status(status, what);
}

}  // namespace innkeeper::torch_layer
