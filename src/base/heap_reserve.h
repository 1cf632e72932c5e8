// Heap memory that is set aside for the engine's own books, for a process that may have no more: under
// `ulimit -v`, as clusters set it, `new` fails anywhere, and a verb that fails in the middle of what it does
// to a block would leave the books wrong.
//
// Where `new` finds nothing it is given a part of the reserve, and tries again. A verb begins only while the
// reserve is whole, or can be made whole again; else it fails before it has changed anything. So what it
// needs in between is there. If the reserve is used up in the middle of a verb all the same, the process ends
// with one line that says why.
//
//     IK_RETURN_IF_ERROR(heap_reserve_ready());  // nothing has changed yet
//     const NeedsHeap books;                     // from here on it must not fail
//
// Thread safety: all functions.
#pragma once

#include <cstddef>

#include "base/status.h"

namespace innkeeper {

inline constexpr size_t kHeapReserve = size_t{4} << 20;

// Sets the memory aside, and has `new` ask for it (std::set_new_handler); whom it asked before is asked when
// the reserve is empty. Again: does nothing.
void install_heap_reserve();

// Ok while the reserve is whole, or is not installed. Costs one load then. Fails with out_of_memory.
Status heap_reserve_ready();

// For a scope in which `new` must not fail.
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
