// An operator's access to one operand or result.
#pragma once

#include "device/device_api.h"

namespace innkeeper {

class Block;

struct Access {
  Block* block = nullptr;
  bool write = false;
  bool pinned = false;           // The engine's: this access holds a pin.
  bool born = false;             // A fresh result.
  bool pure = false;             // A fresh result whose bits depend on the operator's inputs alone.
  Queue queue = Queue::compute;  // Queue of the work on the bytes; not `compute` for a ProgramCopy alone.
};

}  // namespace innkeeper
