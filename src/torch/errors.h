// Converts failures of core, which throws no exceptions, into PyTorch's exceptions.
#pragma once

#include <c10/util/Exception.h>

#include <string>
#include <string_view>

#include "base/status.h"
#include "innkeeper/export.h"

namespace innkeeper::torch_layer {

// Throws by code. out_of_memory: torch.OutOfMemoryError. invalid_argument: ValueError. A failed or lost
// device: torch.AcceleratorError, as with plain CUDA, which is a RuntimeError. Other codes: RuntimeError.
// `what`: the operator or the function of the public interface; empty if the message itself names the faulty
// setting.
[[noreturn]] void throw_status(const Status& status, std::string_view what);

// torch.OutOfMemoryError with the words that libraries and scripts look for. accelerate, Lightning and many
// retry loops recognise an out-of-memory error by CUDA's words, not by the exception's class.
[[noreturn]] void throw_out_of_memory(const std::string& line);

// For allocators, whose callers treat a failure as a lack of memory: OutOfMemoryError for every failure
// except that of a device that had to free memory. A caller that retries after a lack of memory must not hide
// a device's failure.
[[noreturn]] void throw_no_memory(const Status& status);

// Whether an exception was thrown by this file, so that its message names the device, and not by PyTorch.
bool names_its_device(const c10::AcceleratorError& error);

// A kernel written in another language may report a lack of memory by that language's exception. While such
// an exception is in flight, the function throws the c10::OutOfMemoryError for which it stands, or returns.
// Null if there is no such language.
using ThrowOutOfMemory = void (*)();
IK_EXPORT void set_throw_out_of_memory(ThrowOutOfMemory function);
void throw_out_of_memory_of_other_language();

inline void throw_if_error(const Status& status, std::string_view what) {
  if (!status.ok()) throw_status(status, what);
}

}  // namespace innkeeper::torch_layer
