#include "residency/followers.h"

#include <algorithm>

#include "residency/thread_state.h"

namespace innkeeper {

Bytes fair_part(Bytes room, std::span<const Bytes> others) {
  std::vector<Bytes> wanted(others.begin(), others.end());
  std::sort(wanted.begin(), wanted.end());
  Bytes left = room;
  auto sharing = static_cast<int64_t>(wanted.size()) + 1;
  for (const Bytes want : wanted) {
    if (want.count() > left.count() / sharing) break;  // this one and all that follow have equal parts
    left -= want;
    --sharing;
  }
  return Bytes(left.count() / sharing);
}

bool Follower::is_of(const ThreadState& thread) const {
  return thread.life != nullptr && life.load(std::memory_order_relaxed) == thread.life.get();
}

bool Follower::is_over() const {
  const ThreadLife* const its = life.load(std::memory_order_acquire);
  return its == nullptr || its->over.load(std::memory_order_relaxed);
}

void Followers::interrupt() {
  for (Follower& follower : followers_) {
    const MutexLock lock(follower.mutex);
    if (follower.planner != nullptr) follower.planner->interrupt();
  }
}

Follower* Followers::of_thread(const ThreadState& thread) {
  for (Follower& follower : followers_) {
    if (follower.is_of(thread)) return &follower;
  }
  return nullptr;
}

Follower* Followers::give_place(ThreadState& thread, Stamp now, const Room& room,
                                plan::Planner::About about) {
  const MutexLock lock(mutex_);
  const bool others = programs_ != 0;
  if ((others && ++thread.strange < kStrange) || programs_ == BlockName::kMostPrograms) return nullptr;
  Follower* const place = place_for(now);
  if (place == nullptr) return nullptr;
  thread.strange = 0;
  thread.unplanned.fill(0);
  if (thread.life == nullptr) thread.life = std::make_shared<ThreadLife>();
  lives_.push_back(thread.life);
  const MutexLock itself(place->mutex);
  plan::Planner::Beside beside;
  if (aside_ != nullptr) beside = [this](std::function<void()> job) { aside_->run(std::move(job)); };
  place->planner = std::make_unique<plan::Planner>([room, place](NodeId node) { return room(*place, node); },
                                                   std::move(about), std::move(beside));
  place->arrived_before = place->arrived.load(std::memory_order_relaxed);
  place->arrived_in_period = 0;
  place->in_period = {};
  place->program.store(++programs_, std::memory_order_relaxed);
  place->last.store(now, std::memory_order_relaxed);
  for (auto& at : place->last_at) at.store(0, std::memory_order_relaxed);
  for (auto& bytes : place->demand) bytes.store(plan::Wants::kUnknown.count(), std::memory_order_relaxed);
  // Who asks whether it is over looks into it.
  place->life.store(thread.life.get(), std::memory_order_release);
  return place;
}

// A free one, or that of a thread that has ended; else the one that has done nothing for longest, if long.
Follower* Followers::place_for(Stamp now) {
  Follower* oldest = nullptr;
  for (Follower& follower : followers_) {
    if (follower.is_over()) return &follower;
    if (oldest == nullptr || follower.last.load(std::memory_order_relaxed) < oldest->last) oldest = &follower;
  }
  return oldest->last.load(std::memory_order_relaxed) + kForgotten < now ? oldest : nullptr;
}

const Follower* Followers::shown_to(const ThreadState& thread) const {
  const Follower* found = nullptr;
  Stamp latest = 0;
  for (const Follower& follower : followers_) {
    const MutexLock lock(follower.mutex);
    if (follower.planner == nullptr || follower.planner->cost().operators == 0) continue;
    const Stamp last = follower.is_of(thread) ? kAllSoFar : follower.last.load(std::memory_order_relaxed);
    if (last < latest) continue;
    latest = last;
    found = &follower;
  }
  return found;
}

bool Followers::others_at(NodeId node, const ThreadState& thread, Stamp now) const {
  return std::any_of(followers_.begin(), followers_.end(), [&](const Follower& follower) {
    return !follower.is_of(thread) && is_busy(follower, follower.last_at[index_of(node)], now);
  });
}

bool Followers::is_busy(const Follower& follower, const std::atomic<Stamp>& last, Stamp now) {
  if (follower.is_over()) return false;
  const Stamp then = last.load(std::memory_order_relaxed);
  return then != 0 && then + kBusy >= now;
}

Follower* Followers::of_program(int64_t program) {
  for (Follower& follower : followers_) {
    if (follower.program.load(std::memory_order_relaxed) == program) return &follower;
  }
  return nullptr;
}

void Followers::arrived(BlockName block, Bytes size) {
  Follower* const its = block.none() ? nullptr : of_program(block.program());
  if (its != nullptr) its->arrived.fetch_add(size.count(), std::memory_order_relaxed);
}

Bytes Followers::part(const Follower& follower, NodeId node, Bytes room, Stamp now) const {
  std::array<Bytes, kFollowed> others;
  size_t count = 0;
  for (const Follower& other : followers_) {
    if (&other == &follower) continue;
    const Bytes wanted(other.demand[index_of(node)].load(std::memory_order_relaxed));
    const bool known = wanted != plan::Wants::kUnknown;
    if (!is_busy(other, known ? other.last : other.last_at[index_of(node)], now)) continue;
    others[count++] = known ? wanted : room;
  }
  return fair_part(room, std::span(others.data(), count));
}

}  // namespace innkeeper
