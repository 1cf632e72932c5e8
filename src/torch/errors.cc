#include "torch/errors.h"

#include <c10/util/Exception.h>

#include <string>

namespace innkeeper::torch_layer {

void throw_status(const Status& status, std::string_view what) {
  const std::string line = what.empty() ? status.message() : std::string(what) + ": " + status.message();
  switch (status.code()) {
    case Code::out_of_memory: TORCH_CHECK_WITH(OutOfMemoryError, false, line); break;
    case Code::invalid_argument: TORCH_CHECK_VALUE(false, line); break;
    default: TORCH_CHECK(false, line, " (", to_string(status.code()), ")"); break;
  }
  std::abort();  // not reached: each check above throws
}

}  // namespace innkeeper::torch_layer
