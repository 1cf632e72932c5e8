// A record of what operators access, as text: for reports, for studies of policies, for planning. It is made
// of an access stream's events (stream.h) when it ends; until then they are words.
//
// One line an event:
//     O <operator> [=<flops>,<bytes>,<kernels>[,<precision>]] <block>:<bytes><kind> ...
//                    an operator, what it cost where that is known; kind is r (read), w (written), o (born)
//                    or p (born, with the same bits whenever the operator reads the same); precision is that
//                    of the flops (cost/precision.h), bf16 where none is given
//     F <block>      a block was freed
//     M <text>       a mark, for example "step" at the end of a training step
//
// Thread safety: all methods; lines of several threads are whole and in the order in which they were
// recorded. Off, it costs one relaxed load.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "trace/stream.h"

namespace innkeeper::trace {

class Recorder {
 public:
  explicit Recorder(std::shared_ptr<Stream> stream = std::make_shared<Stream>())
      : stream_(std::move(stream)) {}

  bool on() const { return stream_->on(); }
  // Forgets what it has and records up to `max_lines`; lines beyond are counted and dropped.
  void start(size_t max_lines) { stream_->start(max_lines); }
  // Stops and returns the record. If lines were dropped its last line says how many: "M dropped <n>".
  std::string stop();

  // For those who have no engine to tell what operators do.
  void op(std::string_view name, const Work& work, std::span<const RecordedAccess> accesses);
  void freed(BlockId block) { stream_->freed(block); }
  void mark(std::string_view text) { stream_->mark(text); }  // its line ends become spaces

 private:
  const std::shared_ptr<Stream> stream_;
};

}  // namespace innkeeper::trace
