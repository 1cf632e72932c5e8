#include "plan/on_demand.h"

#include <algorithm>

namespace innkeeper::plan {

void OnDemand::ended(std::span<const Touch> touches, double seconds) {
  if (space_ <= Bytes(0)) return;  // No block has to leave.
  ++now_;
  double begin = cost_.seconds;
  // Operands at the node are marked as used first, so that they are not evicted for the others.
  operands_.clear();
  for (const Touch& touch : touches) {
    const EntryIndex index = index_of_block(touch);
    operands_.push_back(index);
    Entry& entry = entries_[index];
    entry.stays = touch.stays;
    if (!entry.there) continue;
    entry.last_use = now_;
    take_out(index);
    link_in(index);
  }
  for (size_t i = 0; i < touches.size(); ++i) {
    const Touch& touch = touches[i];
    const EntryIndex index = operands_[i];
    if (!entries_[index].there) {
      const bool returns = entries_[index].spare;
      make_room(touch.size);
      Entry& entry = entries_[index];
      double ready = 0;
      if (returns) {
        ready = std::max(free_.take_oldest(touch.size.count()), in_free_) + copy_seconds(touch.size);
        in_free_ = ready;
        cost_.arrived += touch.size;
        entry.reuse_history.came(entry.last_use, now_);
      } else {
        ready = free_.take_newest(touch.size.count(), cost_.seconds);
      }
      entry.there = true;
      entry.last_use = now_;
      link_in(index);
      begin = std::max(begin, ready);
    }
    Entry& entry = entries_[index];
    if (touch.write) entry.spare = false;
  }
  if (seconds > 0) cost_.seconds = begin + seconds;
  mark(touches);
}

void OnDemand::mark(std::span<const Touch> touches) {
  for (const Touch& touch : touches) written_ += touch.write ? touch.size : Bytes(0);
  if (++unmarked_ < kFew && written_ < kMuch) return;
  unmarked_ = 0;
  written_ = Bytes(0);
  marks_[next_mark_ % kMarks] = {now_, cost_.seconds};
  ++next_mark_;
}

double OnDemand::done_at(uint64_t operation) const {
  const size_t oldest = next_mark_ > kMarks ? next_mark_ - kMarks : 0;
  size_t low = oldest, high = next_mark_;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (marks_[middle % kMarks].operation < operation) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low == next_mark_ ? cost_.seconds : marks_[low % kMarks].seconds;
}

OnDemand::EntryIndex OnDemand::index_of_block(const Touch& touch) {
  const auto [found, is_new] = indices_.try_emplace(touch.block, kNone);
  if (!is_new) {
    Entry& entry = entries_[found->second];
    if (entry.there && entry.size != touch.size) {  // A kernel has resized it.
      take_out(found->second);
      free_.give(cost_.seconds, entry.size.count());
      entry.size = touch.size;
      (void)free_.take_oldest(touch.size.count());
      link_in(found->second);
    }
    entry.size = touch.size;
    return found->second;
  }
  if (unused_.empty()) {
    found->second = static_cast<EntryIndex>(entries_.size());
    entries_.emplace_back();
  } else {
    found->second = unused_.back();
    unused_.pop_back();
  }
  entries_[found->second] = {.name = touch.block, .size = touch.size};
  return found->second;
}

void OnDemand::set_space(Bytes space) {
  if (space == space_) return;
  space_ = space;
  free_.set_limit(space.count(), cost_.seconds);
}

void OnDemand::died(Name name) {
  const auto found = indices_.find(name);
  if (found == indices_.end()) return;
  remove(found->second, cost_.seconds);
  unused_.push_back(found->second);
  indices_.erase(found);
}

void OnDemand::written_elsewhere(Name name) {
  const auto found = indices_.find(name);
  if (found == indices_.end()) return;
  remove(found->second, cost_.seconds);
  entries_[found->second].spare = true;
}

void OnDemand::remove(EntryIndex index, double free_at) {
  Entry& entry = entries_[index];
  if (!entry.there) return;
  take_out(index);
  entry.there = false;
  free_.give(free_at, entry.size.count());
}

void OnDemand::make_room(Bytes size) {
  while (large_.size + small_.size + size > space_) {
    const EntryIndex index = victim();
    if (index == kNone) return;
    Entry& leaving = entries_[index];
    double free_at = done_at(leaving.last_use);
    if (!leaving.spare) out_free_ = free_at = std::max(out_free_, free_at) + copy_seconds(leaving.size);
    leaving.reuse_history.left(leaving.last_use);
    remove(index, free_at);
    leaving.spare = true;
  }
}

// The same rule as VictimIndex::pop.
OnDemand::EntryIndex OnDemand::victim() {
  const bool few_small = small_.size.count() <= space_.count() / kSmallShare;
  EntryIndex found = oldest(large_);
  if (found == kNone || !few_small) {
    const EntryIndex small = oldest(small_);
    if (found == kNone || (small != kNone && entries_[small].last_use < entries_[found].last_use))
      return small;
  }
  const auto view_of = [](const Entry& entry) {
    return EvictionView{entry.size, entry.last_use, entry.spare, entry.reuse_history};
  };
  uint64_t latest = policy_->next_use(view_of(entries_[found]), now_);
  if (latest == 0) return found;
  for (size_t looks = std::min(kVictimLooks, entries_.size()); looks > 0; --looks) {
    hand_ = hand_ + 1 < entries_.size() ? hand_ + 1 : 0;
    const Entry& entry = entries_[hand_];
    if (!entry.there || !entry.spare || entry.stays || entry.last_use == now_ || entry.size <= kSmallReplica)
      continue;
    const uint64_t next = policy_->next_use(view_of(entry), now_);
    if (next <= latest) continue;
    latest = next;
    found = static_cast<EntryIndex>(hand_);
  }
  return found;
}

// kNone if the current operator uses all of them, or the user has pinned them.
OnDemand::EntryIndex OnDemand::oldest(const UseList& list) const {
  EntryIndex found = list.first;
  while (found != kNone && (entries_[found].stays || entries_[found].last_use == now_))
    found = entries_[found].after;
  return found;
}

void OnDemand::link_in(EntryIndex index) {
  Entry& entry = entries_[index];
  UseList& list = list_of(entry);
  entry.before = list.last;
  entry.after = kNone;
  (list.last == kNone ? list.first : entries_[list.last].after) = index;
  list.last = index;
  list.size += entry.size;
}

void OnDemand::take_out(EntryIndex index) {
  const Entry& entry = entries_[index];
  UseList& list = list_of(entry);
  (entry.before == kNone ? list.first : entries_[entry.before].after) = entry.after;
  (entry.after == kNone ? list.last : entries_[entry.after].before) = entry.before;
  list.size -= entry.size;
}

double OnDemand::copy_seconds(Bytes size) const {
  if (speed_.link <= 0) return 0;
  return kLatency + static_cast<double>(size.count()) / speed_.link;
}

}  // namespace innkeeper::plan
