#include "base/status.h"

namespace innkeeper {

const char* to_string(Code code) {
  switch (code) {
    case Code::ok: return "ok";
    case Code::invalid_argument: return "invalid argument";
    case Code::out_of_memory: return "out of memory";
    case Code::io_error: return "I/O error";
    case Code::damaged: return "damaged";
    case Code::device_failed: return "device failed";
    case Code::device_lost: return "device lost";
    case Code::unavailable: return "unavailable";
    case Code::busy: return "busy";
    case Code::discarded: return "discarded";
  }
  return "unknown";
}

}  // namespace innkeeper
