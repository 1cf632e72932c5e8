// Functions that the engine calls: set before the first block is created, called by any thread. They must not
// throw: the engine calls them in the middle of a change.
#pragma once

#include <cstdint>
#include <functional>

#include "base/types.h"
#include "device/device_api.h"
#include "residency/block/block.h"

namespace innkeeper {

// A block's memory on a node changes. Called without the lock and while no thread can pin that replica.
// `data` is null if the memory is about to be freed.
using MemoryObserver = std::function<void(Block& block, NodeId node, void* data)>;

// The purpose of a copy, by which stats() counts its bytes.
enum class CopyKind : uint8_t { fetch, write_back, between };

inline CopyKind copy_kind(NodeKind from, NodeKind to) {
  if (from == NodeKind::accelerator && to == NodeKind::accelerator) return CopyKind::between;
  return from == NodeKind::accelerator || to == NodeKind::disk ? CopyKind::write_back : CopyKind::fetch;
}

// Runs `copy`, which only puts a copy of `size` bytes on its queue, so that a profiler can show it. Called
// without the lock, by the thread that takes the move's step.
using CopyWatch =
    std::function<void(const Device& from, const Device& to, Bytes size, const std::function<void()>& copy)>;

// Whether the real memory of this replica is still held outside of the engine (I12).
using EscapeProbe = std::function<bool(Block& block, NodeId node)>;

}  // namespace innkeeper
