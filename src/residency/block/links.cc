#include "residency/block/links.h"

#include <algorithm>
#include <utility>

namespace innkeeper {

const char* to_string(MoveState state) {
  switch (state) {
    case MoveState::wanted: return "wanted";
    case MoveState::reserved: return "reserved";
    case MoveState::copying: return "copying";
    case MoveState::landed: return "landed";
    case MoveState::failed: return "failed";
    case MoveState::cancelled: return "cancelled";
  }
  return "?";
}

void Link::began(Event copy, Bytes size) {
  if (copy == nullptr) return;
  in_flight_.push_back({std::move(copy), size});
  if (in_flight_.size() > kRemembered) in_flight_.pop_front();
}

bool Link::is_free(const LinkLimits& limits) {
  while (!in_flight_.empty() && is_done(in_flight_.front().copy)) in_flight_.pop_front();
  if (in_flight_.size() < limits.few) return true;
  if (in_flight_.size() == kRemembered) return false;
  Bytes size{0};
  for (const Flight& flight : in_flight_) size += flight.size;
  return size < limits.enough;
}

MovePtr Link::take() {
  for (auto& queue : waiting_) {
    while (!queue.empty()) {
      MovePtr first = std::move(queue.front());
      queue.pop_front();
      if (!first->is_over()) return first;
    }
  }
  return nullptr;
}

// O(1) nearly always: moves that have copies already stand in front.
template <class Which>
MovePtr Link::take_last_of(std::deque<MovePtr>& queue, const Which& which) {
  const auto last = std::find_if(queue.rbegin(), queue.rend(), [&](const MovePtr& move) {
    return move->state() == MoveState::reserved && which(*move);
  });
  if (last == queue.rend()) return nullptr;
  MovePtr found = std::move(*last);
  queue.erase(std::next(last).base());
  return found;
}

MovePtr Link::take_last() {
  for (auto queue = waiting_.rbegin(); queue != waiting_.rend(); ++queue) {
    while (!queue->empty() && queue->back()->is_over()) queue->pop_back();
    if (MovePtr found = take_last_of(*queue, [](const Move&) { return true; })) return found;
  }
  return nullptr;
}

MovePtr Link::take_last_planned(const std::function<bool(const Move&)>& which) {
  return take_last_of(waiting_[static_cast<size_t>(Priority::planned)], which);
}

size_t Link::waiting() const {
  size_t count = 0;
  for (const auto& queue : waiting_) count += queue.size();
  return count;
}

}  // namespace innkeeper
