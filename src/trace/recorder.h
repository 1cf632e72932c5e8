// A record of what operators access, as text: for reports, for studies of policies, for planning.
//
// One line an event:
//     O <operator> [=<flops>,<bytes>,<kernels>] <block>:<bytes><kind> ...
//                    an operator, what it cost where that is known; kind is r (read), w (written) or o (born)
//     F <block>      a block was freed
//     M <text>       a mark, for example "step" at the end of a training step
//
// Thread safety: all methods; lines of several threads are whole and in the order in which they were
// recorded. Off, it costs one relaxed load.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/thread_annotations.h"
#include "base/types.h"

namespace innkeeper::trace {

enum class AccessKind : char { read = 'r', write = 'w', born = 'o' };

// What an operator had its node do; no kernels: nobody knows.
struct Work {
  double flops = 0;
  double bytes = 0;  // read and written
  int64_t kernels = 0;
};

struct RecordedAccess {
  BlockId block;
  Bytes size;
  AccessKind kind;
};

class Recorder {
 public:
  bool on() const { return on_.load(std::memory_order_relaxed); }
  // Forgets what it has and records up to `max_lines`; lines beyond are counted and dropped.
  void start(size_t max_lines);
  // Stops and returns the record. If lines were dropped its last line says how many: "M dropped <n>".
  std::string stop();

  void op(std::string_view name, const Work& work, std::span<const RecordedAccess> accesses);
  void freed(BlockId block);
  void mark(std::string_view text);  // its line ends become spaces

 private:
  void append(std::string_view line);

  std::atomic<bool> on_{false};
  Mutex mutex_;
  std::string text_ IK_GUARDED_BY(mutex_);
  size_t lines_ IK_GUARDED_BY(mutex_) = 0;
  size_t max_lines_ IK_GUARDED_BY(mutex_) = 0;
  size_t dropped_ IK_GUARDED_BY(mutex_) = 0;
};

}  // namespace innkeeper::trace
