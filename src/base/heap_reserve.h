// Reserves heap memory for the engine's bookkeeping in a process with a memory limit. Under `ulimit -v`, as
// clusters set it, any `new` may fail. A verb that fails while it changes a block would leave the engine's
// bookkeeping inconsistent.
//
// When `new` finds no memory, the reserve frees one part, and `new` tries again. A verb starts only if the
// reserve is complete or can be completed; otherwise it fails before it has changed any state. If a verb uses
// up the whole reserve, the process ends with one line that gives the reason.
//
//     IK_RETURN_IF_ERROR(heap_reserve_ready());  // No state has changed yet.
//     const NeedsHeap books;                     // From here on `new` must not fail.
//
// Thread safety: all functions.
#pragma once

#include <cstddef>

#include "base/status.h"

namespace innkeeper {

inline constexpr size_t kHeapReserve = size_t{4} << 20;

// Allocates the reserve and registers it with std::set_new_handler. The previous handler is called when the
// reserve is empty. A second call has no effect.
void install_heap_reserve();

// Ok if the reserve is complete or not installed; costs one load then. Fails with out_of_memory.
Status heap_reserve_ready();

// A scope in which `new` must not fail.
class NeedsHeap {
 public:
  NeedsHeap() { ++depth; }
  ~NeedsHeap() { --depth; }
  NeedsHeap(const NeedsHeap&) = delete;
  NeedsHeap& operator=(const NeedsHeap&) = delete;

 private:
  friend void on_failed_new();
  static constinit thread_local int depth;
};

}  // namespace innkeeper
