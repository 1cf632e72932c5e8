#include "trace/merged.h"

#include <algorithm>
#include <utility>

namespace innkeeper::trace {

void Merged::add(std::vector<Words> ring) {
  Source source{.pieces = std::move(ring)};
  if (source.pieces.empty()) return;
  source.rest = source.pieces.front();
  if (!advance(source)) return;
  sources_.push_back(std::move(source));
  std::push_heap(sources_.begin(), sources_.end(), later);
}

// Skips events that are not of this record: those that only their thread reads, and those of
// an earlier record.
bool Merged::advance(Source& source) {
  for (;;) {
    while (read_event(source.rest, source.event)) {
      if (source.event.order >= first_) return true;
    }
    passed_.push_back(std::move(source.pieces[source.piece]));
    if (source.piece + 1 == source.pieces.size()) return false;
    source.rest = source.pieces[++source.piece];
  }
}

bool Merged::next(Event& event) {
  passed_.clear();
  if (sources_.empty()) return false;
  std::pop_heap(sources_.begin(), sources_.end(), later);
  event = sources_.back().event;
  if (advance(sources_.back())) {
    std::push_heap(sources_.begin(), sources_.end(), later);
  } else {
    sources_.pop_back();
  }
  return true;
}

}  // namespace innkeeper::trace
