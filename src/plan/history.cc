#include "plan/history.h"

#include <algorithm>

namespace innkeeper::plan {
namespace {

uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

}  // namespace

void History::ended(NodeId node, std::span<const Touch> touches) {
  if (operators_.size() >= 2 * kKept || touches_.size() >= kMostTouches) drop_oldest();
  uint64_t shape = mixed(touches.size(), index_of(node));
  Name eldest = births_;
  for (const Touch& touch : touches) {
    shape = mixed(shape, static_cast<uint64_t>(touch.size.count()) * 2 + (touch.write ? 1 : 0));
    eldest = std::min(eldest, touch.block);
  }
  operators_.push_back({shape, key_of(shape, eldest), dropped_touches_ + touches_.size(), births_, node});
  touches_.insert(touches_.end(), touches.begin(), touches.end());
}

uint64_t History::key_of(uint64_t shape, Name eldest) { return mixed(shape, static_cast<uint64_t>(eldest)); }

std::span<const Touch> History::touches(int64_t index) const {
  const size_t first = at(index).first - dropped_touches_;
  const size_t last = index + 1 < end() ? at(index + 1).first - dropped_touches_ : touches_.size();
  return std::span(touches_).subspan(first, last - first);
}

std::span<const History::Death> History::deaths_from(int64_t index) const {
  const auto first = std::lower_bound(deaths_.begin(), deaths_.end(), index,
                                      [](const Death& death, int64_t at) { return death.after < at; });
  return std::span(deaths_).subspan(static_cast<size_t>(first - deaths_.begin()));
}

bool History::repeats(int64_t later, int64_t earlier) const {
  const Operator& now = at(later);
  const Operator& then = at(earlier);
  if (now.shape != then.shape) return false;
  const std::span<const Touch> after = touches(later);
  const std::span<const Touch> before = touches(earlier);
  const int64_t made = now.births - then.births;
  if (after.size() != before.size()) return false;
  for (size_t i = 0; i < after.size(); ++i) {
    const int64_t apart = after[i].block - before[i].block;
    if ((apart != 0 && apart != made) || after[i].size != before[i].size) return false;
  }
  return true;
}

void History::drop_oldest() {
  const size_t count = operators_.size() > kKept ? operators_.size() - kKept : operators_.size() / 2;
  const size_t touches = operators_[count].first - dropped_touches_;
  operators_.erase(operators_.begin(), operators_.begin() + static_cast<int64_t>(count));
  touches_.erase(touches_.begin(), touches_.begin() + static_cast<int64_t>(touches));
  dropped_ += static_cast<int64_t>(count);
  dropped_touches_ += touches;
  std::erase_if(deaths_, [this](const Death& death) { return death.after < dropped_; });
}

}  // namespace innkeeper::plan
