// A record's events, of all threads, in the order in which they happened.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trace/event.h"
#include "trace/ring.h"

namespace innkeeper::trace {

class Merged {
 public:
  // Events before `first` are none of the record.
  Merged(uint64_t first, uint64_t dropped) : first_(first), dropped_(dropped) {}
  // What one ring had.
  void add(std::vector<Words> ring);

  // The next event; false after the last. It can be read until the next call.
  bool next(Event& event);
  // How many did not fit.
  uint64_t dropped() const { return dropped_; }

 private:
  struct Source {
    std::vector<Words> pieces;
    size_t piece = 0;  // from which `rest` is
    std::span<const uint64_t> rest = {};
    Event event = {};
  };
  bool advance(Source& source);
  static bool later(const Source& a, const Source& b) { return a.event.order > b.event.order; }

  const uint64_t first_;
  const uint64_t dropped_;
  std::vector<Source> sources_;  // a heap: in front that of the next event
  std::vector<Words> passed_;    // pieces that are read, into which the last event may look
};

}  // namespace innkeeper::trace
