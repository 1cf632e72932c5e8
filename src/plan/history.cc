#include "plan/history.h"

#include <algorithm>

namespace innkeeper::plan {
namespace {

uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

}  // namespace

void History::ended(NodeId node, std::span<const Touch> touches, double seconds, double host) {
  if (place_of(end_) == 0) [[unlikely]]
    begin_part();
  uint64_t shape = mixed(touches.size(), index_of(node));
  Name eldest = births_;
  for (const Touch& touch : touches) {
    shape = mixed(shape, static_cast<uint64_t>(touch.size.count()) * 2 + (touch.write ? 1 : 0));
    eldest = std::min(eldest, touch.block);
  }
  Part& part = *parts_.back();
  part.operators[place_of(end_)] = {shape,
                                    key_of(shape, eldest),
                                    births_,
                                    static_cast<uint32_t>(part.touches.size()),
                                    static_cast<float>(seconds),
                                    static_cast<float>(host),
                                    node};
  part.touches.insert(part.touches.end(), touches.begin(), touches.end());
  touched_ += touches.size();
  ++end_;
}

uint64_t History::key_of(uint64_t shape, Name eldest) { return mixed(shape, static_cast<uint64_t>(eldest)); }

std::span<const Touch> History::touches(int64_t index) const {
  const Part& part = part_of(index);
  const size_t place = place_of(index);
  const size_t first = part.operators[place].first;
  const bool last = index + 1 == end_ || place + 1 == part.operators.size();
  return std::span(part.touches)
      .subspan(first, (last ? part.touches.size() : part.operators[place + 1].first) - first);
}

std::span<const History::Death> History::deaths_from(int64_t index) const {
  const auto first = std::lower_bound(deaths_.begin() + static_cast<ptrdiff_t>(first_death_), deaths_.end(),
                                      index, [](const Death& death, int64_t at) { return death.after < at; });
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

void History::begin_part() {
  constexpr int64_t kMost = static_cast<int64_t>(kKept) + (int64_t{1} << kPartBits);
  while (!parts_.empty() && (end_ - begin() >= kMost || touched_ >= kMostTouches)) drop_oldest();
  parts_.push_back(unused_ != nullptr ? std::move(unused_) : std::make_unique<Part>());
}

void History::drop_oldest() {
  unused_ = std::move(parts_.front());
  parts_.pop_front();
  touched_ -= unused_->touches.size();
  unused_->touches.clear();
  ++dropped_;
  const auto gone = [this](const Death& death) { return death.after < begin(); };
  const auto first = deaths_.begin() + static_cast<ptrdiff_t>(first_death_);
  first_death_ = static_cast<size_t>(std::partition_point(first, deaths_.end(), gone) - deaths_.begin());
  if (2 * first_death_ < deaths_.size()) return;
  deaths_.erase(deaths_.begin(), deaths_.begin() + static_cast<ptrdiff_t>(first_death_));
  first_death_ = 0;
}

}  // namespace innkeeper::plan
