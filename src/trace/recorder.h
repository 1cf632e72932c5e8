// A record of operators' accesses as text, for reports, for studies of policies and for planning. It is made
// from an access stream's events (stream.h) when the record ends; until then the events are words.
//
// Each event is one line:
//     O <operator> [=<flops>,<bytes>,<kernels>[,<precision>]] <block>:<bytes><kind> ...
//                    an operator, with its work if known; kind is r (read), w (written), o (born)
//                    or p (born, with the same bits whenever the operator reads the same); precision is that
//                    of the flops (cost/precision.h), bf16 if none is given
//     F <block>      a block was freed
//     M <text>       a mark, for example "step" at the end of a training step
//
// Thread safety: all methods; lines of several threads are whole and in the order in which they were
// recorded. When off, it costs one relaxed load.
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
  // Discards the present record and records up to `max_lines` lines; further lines are counted and dropped.
  void start(size_t max_lines) { stream_->start(max_lines); }
  // Stops and returns the record. If lines were dropped, its last line gives their number: "M dropped <n>".
  std::string stop();

  // For programs without an engine that reports operators.
  void op(std::string_view name, const Work& work, std::span<const RecordedAccess> accesses);
  void freed(BlockId block) { stream_->freed(block); }
  void mark(std::string_view text) { stream_->mark(text); }  // Line ends in the text become spaces.

 private:
  const std::shared_ptr<Stream> stream_;
};

}  // namespace innkeeper::trace
