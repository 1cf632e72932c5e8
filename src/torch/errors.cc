#include "torch/errors.h"

#include <c10/util/Exception.h>

namespace innkeeper::torch_layer {

void throw_status(const Status& status, std::string_view what) {
  switch (status.code()) {
    case Code::out_of_memory: TORCH_CHECK_WITH(OutOfMemoryError, false, what, ": ", status.message()); break;
    case Code::invalid_argument: TORCH_CHECK_VALUE(false, what, ": ", status.message()); break;
    default: TORCH_CHECK(false, what, ": ", status.message(), " (", to_string(status.code()), ")"); break;
  }
  std::abort();  // not reached: each check above throws
}

}  // namespace innkeeper::torch_layer
