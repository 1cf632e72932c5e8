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
  // Events with an order below `first` do not belong to the record.
  Merged(uint64_t first, uint64_t dropped) : first_(first), dropped_(dropped) {}
  // Adds the contents of one ring.
  void add(std::vector<Words> ring);

  // Reads the next event; false after the last. The event is valid until the next call.
  bool next(Event& event);
  // Number of events beyond the record's limit.
  uint64_t dropped() const { return dropped_; }

 private:
  struct Source {
    std::vector<Words> pieces;
    size_t piece = 0;  // Index of the piece that contains `rest`.
    std::span<const uint64_t> rest = {};
    Event event = {};
  };
  bool advance(Source& source);
  static bool later(const Source& a, const Source& b) { return a.event.order > b.event.order; }

  const uint64_t first_;
  const uint64_t dropped_;
  std::vector<Source> sources_;  // A heap whose front is the source of the next event.
  std::vector<Words> passed_;    // Pieces already read, to which the last event may refer.
};

}  // namespace innkeeper::trace
