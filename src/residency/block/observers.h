// Who is told, or asked, by the engine: set before the first block, called by any thread.
#pragma once

#include <cstdint>
#include <functional>

#include "base/types.h"
#include "device/device_api.h"
#include "residency/block/block.h"

namespace innkeeper {

// Told when a block's memory on a node changes, outside of the engine's lock and while no thread can pin that
// replica. `data` is null when the memory is about to go.
using MemoryObserver = std::function<void(Block& block, NodeId node, void* data)>;

// What a copy is for, as stats() counts its bytes.
enum class CopyKind : uint8_t { fetch, write_back, between };

inline CopyKind copy_kind(NodeKind from, NodeKind to) {
  if (from == NodeKind::accelerator && to == NodeKind::accelerator) return CopyKind::between;
  return from == NodeKind::accelerator || to == NodeKind::disk ? CopyKind::write_back : CopyKind::fetch;
}

// Runs `copy`, which puts a copy of `size` bytes on its queue, and does nothing else: so that a profiler can
// show it. Called outside of the engine's lock, by whichever thread takes that step.
using CopyWatch =
    std::function<void(const Device& from, const Device& to, Bytes size, const std::function<void()>& copy)>;

// Is the real memory of this replica still held outside of the engine (I12)?
using EscapeProbe = std::function<bool(Block& block, NodeId node)>;

}  // namespace innkeeper
