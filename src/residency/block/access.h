// What an operator does to one of its operands, or results.
#pragma once

#include "device/device_api.h"

namespace innkeeper {

class Block;

struct Access {
  Block* block = nullptr;
  bool write = false;
  bool pinned = false;           // the engine's: this access holds a pin
  bool born = false;             // a result that is new,
  bool pure = false;             // A new result that has the same bits whenever its operator reads the same.
  Queue queue = Queue::compute;  // Queue of the work on the bytes; not `compute` for a ProgramCopy alone.
};

}  // namespace innkeeper
