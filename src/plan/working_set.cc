#include "plan/working_set.h"

#include <algorithm>
#include <bitset>
#include <cstdlib>
#include <span>
#include <unordered_map>

namespace innkeeper::plan {
namespace {

class Alive {
 public:
  void touch(NodeId node, const Touch& touch) {
    Block& block = blocks_[touch.block];
    const size_t at = index_of(node);
    if (block.nodes.test(at)) return;
    block.nodes.set(at);
    block.size = round_up(touch.size);
    bytes_[at] += block.size;
    most_[at] = std::max(most_[at], bytes_[at]);
  }
  void die(Name name) {
    const auto found = blocks_.find(name);
    if (found == blocks_.end()) return;
    for (size_t at = 0; at < kMaxNodes; ++at)
      if (found->second.nodes.test(at)) bytes_[at] -= found->second.size;
    blocks_.erase(found);
  }
  const std::array<Bytes, kMaxNodes>& most() const { return most_; }

 private:
  struct Block {
    Bytes size{0};
    std::bitset<kMaxNodes> nodes;
  };
  std::unordered_map<Name, Block> blocks_;
  std::array<Bytes, kMaxNodes> bytes_{};
  std::array<Bytes, kMaxNodes> most_{};
};

}  // namespace

std::array<Bytes, kMaxNodes> working_set_of_last(const History& history, int64_t operators) {
  const int64_t begin = std::max(history.begin(), history.end() - operators);
  Alive alive;
  const std::span<const History::Death> deaths = history.deaths_from(begin);
  auto death = deaths.begin();
  for (int64_t at = begin; at < history.end(); ++at) {
    for (const Touch& touch : history.touches(at)) alive.touch(history.at(at).node, touch);
    for (; death != deaths.end() && death->after <= at; ++death) alive.die(death->block);
  }
  return alive.most();
}

void WorkingSet::follow(const ByNode& working_set, int64_t length) {
  changed_ |= working_set != bytes_;
  bytes_ = working_set;
  length_ = length;
  next_estimate_ = INT64_MAX;
  estimates_ = 0;
}

void WorkingSet::evicted_without_a_period(const History& history) {
  next_estimate_ = std::min(next_estimate_, history.end() + kTimes * std::max(length_, kKept));
}

void WorkingSet::estimate(const History& history, const Beyond& beyond) {
  next_estimate_ = history.end() + (kFirst << std::min(estimates_++, kMostDoubled));
  const ByNode used = working_set_of_last(history, kLooked);
  ByNode found = used;
  for (size_t i = 0; i < kMaxNodes; ++i) {
    if (used[i] == Bytes(0)) continue;
    const auto [node, bytes] = beyond(NodeId{static_cast<uint8_t>(i)}, used[i]);
    if (node != kNoNode) found[index_of(node)] += bytes;
  }
  bool same = true;
  for (size_t i = 0; i < kMaxNodes; ++i) {
    const int64_t before = bytes_[i].count();
    same &= before >= 0 && std::abs(found[i].count() - before) <= before / kSame;
  }
  if (same) return;
  bytes_ = found;
  changed_ = true;
}

}  // namespace innkeeper::plan
