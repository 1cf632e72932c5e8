// A recorded call: how the bytes of a discarded block are recomputed, by the operator that made them, from
// its inputs (docs/design/recompute.md). The engine knows no operators; the torch layer implements recorded
// calls.
//
// Thread safety: a recorded call is used by one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/status.h"
#include "base/types.h"

namespace innkeeper {

class Block;

class RecordedCall {
 public:
  // A block that the operator read, and Block::writes() at that time.
  struct Input {
    Block* block;
    uint32_t writes;
  };

  // The call keeps its inputs alive; they may end with it, so it must end where no lock is held.
  virtual ~RecordedCall() = default;
  // Empty if an input has ended: then the call cannot be followed.
  virtual std::span<const Input> inputs() const = 0;
  // Block::writes() of the block itself when its operator had ended.
  virtual uint32_t writes() const = 0;
  // Node at which the operator ran.
  virtual NodeId node() const = 0;
  // False if a setting of the process has changed so that the operator would make other bytes. Called with
  // the lock.
  virtual bool in_force() const { return true; }
  // Runs the operator at node() again; Recomputer::refill() then gives the block the result's bytes.
  virtual Status follow(Block& block) = 0;
};

// The recorded call of a block; null if there is none.
using RecomputeIndex = std::function<std::unique_ptr<RecordedCall>(Block& block)>;

}  // namespace innkeeper
