// A recorded call: the operator that computed a block's bytes, and its inputs, so that the block can be
// discarded and recomputed (docs/design/recompute.md). The engine knows no operators; the torch layer
// implements recorded calls.
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
  // A block that the operator read, and its Block::writes() when the operator read it.
  struct Input {
    Block* block;
    uint32_t writes;
  };

  // The object keeps the blocks of inputs() alive, and they may end with it. Requires: the caller does not
  // hold the engine's lock.
  virtual ~RecordedCall() = default;
  // Empty if an input had ended before this object was created: then the call cannot be followed.
  virtual std::span<const Input> inputs() const = 0;
  // Block::writes() of the computed block after its operator.
  virtual uint32_t writes() const = 0;
  // Node at which the operator ran.
  virtual NodeId node() const = 0;
  // False if the operator might compute other bytes now, as after a change of a process-wide setting. Called
  // with the engine's lock.
  virtual bool in_force() const { return true; }
  // Runs the operator at node() again, and gives the block the result's bytes by Recomputer::refill(). Called
  // without the engine's lock.
  virtual Status follow(Block& block) = 0;
};

// Creates a recorded call of the block; null if its operator was not recorded.
using RecomputeIndex = std::function<std::unique_ptr<RecordedCall>(Block& block)>;

}  // namespace innkeeper
