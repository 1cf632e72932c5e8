// Core's failures as PyTorch's exceptions: this is the edge.
#pragma once

#include <c10/util/Exception.h>

#include <string>
#include <string_view>

#include "base/status.h"
#include "innkeeper/export.h"

namespace innkeeper::torch_layer {

// out_of_memory: torch.OutOfMemoryError; invalid_argument: ValueError; a device that failed or is lost:
// torch.AcceleratorError, as of plain CUDA, which is a RuntimeError; else RuntimeError. `what` is the
// operator or the function of the public interface; empty where the message names what was wrong itself.
[[noreturn]] void throw_status(const Status& status, std::string_view what);

// torch.OutOfMemoryError, with the words that libraries and scripts look for in it: accelerate, Lightning and
// many a retry loop know running out of memory by CUDA's words, not by the exception's class.
[[noreturn]] void throw_out_of_memory(const std::string& line);

// For allocators, whose callers expect a failure to be want of memory: OutOfMemoryError for every failure but
// that of a device, which had to make room. A caller that tries again after want of memory must not hide that
// one.
[[noreturn]] void throw_no_memory(const Status& status);

// Whether an exception is one of these, whose message says which device failed, and not one of PyTorch's.
bool names_its_device(const c10::AcceleratorError& error);

// A kernel that is written in another language may let want of memory out as that language's exception.
// While one is in flight: throws the c10::OutOfMemoryError that it stands for, or returns. Null where there
// is no such language.
using ThrowOutOfMemory = void (*)();
IK_EXPORT void set_throw_out_of_memory(ThrowOutOfMemory function);
void throw_out_of_memory_of_other_language();

inline void throw_if_error(const Status& status, std::string_view what) {
  if (!status.ok()) throw_status(status, what);
}

}  // namespace innkeeper::torch_layer
