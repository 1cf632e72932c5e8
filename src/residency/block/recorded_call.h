// How a block's bytes are had again once they were dropped: by the operator that made them, from what that
// one read (docs/design/recompute.md). The engine knows no operators; who runs them writes the recorded
// calls.
//
// Thread safety: a recorded call is one thread's at a time.
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
  // What the operator read, and how often that had been written until then (Block::writes).
  struct Input {
    Block* block;
    uint32_t writes;
  };

  // While it lives, so do its inputs: they may end with it, so it ends where no lock is held.
  virtual ~RecordedCall() = default;
  // Empty where one of them has gone: then it cannot be followed.
  virtual std::span<const Input> inputs() const = 0;
  // How often the block itself had been written when its operator had ended.
  virtual uint32_t writes() const = 0;
  // Where the operator ran.
  virtual NodeId node() const = 0;
  // False: the operator would make other bytes now, by what has been set for all of the process since. Asked
  // under the engine's lock.
  virtual bool in_force() const { return true; }
  // Runs the operator there once more, and has Recomputer::refill() give the block what it made.
  virtual Status follow(Block& block) = 0;
};

// The recorded call of a block; null if there is none.
using RecomputeIndex = std::function<std::unique_ptr<RecordedCall>(Block& block)>;

}  // namespace innkeeper
