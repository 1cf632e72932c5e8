#include "residency/books/program_trackers.h"

#include <algorithm>

#include "residency/block/thread_state.h"

namespace innkeeper {

Bytes fair_part(Bytes space, std::span<const Bytes> others) {
  std::vector<Bytes> wanted(others.begin(), others.end());
  std::sort(wanted.begin(), wanted.end());
  Bytes left = space;
  auto sharing = static_cast<int64_t>(wanted.size()) + 1;
  for (const Bytes want : wanted) {
    if (want.count() > left.count() / sharing) break;  // This one and all that follow get equal shares.
    left -= want;
    --sharing;
  }
  return Bytes(left.count() / sharing);
}

bool ProgramTracker::is_of(const ThreadState& thread) const {
  return thread.life != nullptr && life.load(std::memory_order_relaxed) == thread.life.get();
}

bool ProgramTracker::is_over() const {
  const ThreadLife* const its = life.load(std::memory_order_acquire);
  return its == nullptr || its->over.load(std::memory_order_relaxed);
}

void ProgramTrackers::interrupt() {
  for (ProgramTracker& tracker : trackers_) {
    const MutexLock lock(tracker.mutex);
    if (tracker.planner != nullptr) tracker.planner->interrupt();
  }
}

ProgramTracker* ProgramTrackers::of_thread(const ThreadState& thread) {
  for (ProgramTracker& tracker : trackers_) {
    if (tracker.is_of(thread)) return &tracker;
  }
  return nullptr;
}

ProgramTracker* ProgramTrackers::give_place(ThreadState& thread, Stamp now, const FreeSpace& space,
                                            plan::Planner::About about) {
  const MutexLock lock(mutex_);
  const bool others = programs_ != 0;
  if ((others && ++thread.strange < kStrange) || programs_ == BlockName::kMostPrograms) return nullptr;
  ProgramTracker* const place = place_for(now);
  if (place == nullptr) return nullptr;
  thread.strange = 0;
  thread.unplanned.fill(0);
  if (thread.life == nullptr) thread.life = std::make_shared<ThreadLife>();
  lives_.push_back(thread.life);
  const MutexLock itself(place->mutex);
  plan::Planner::RunInBackground run_in_background;
  if (worker_ != nullptr)
    run_in_background = [this](std::function<void()> job) { worker_->run(std::move(job)); };
  place->planner =
      std::make_unique<plan::Planner>([space, place](NodeId node) { return space(*place, node); },
                                      std::move(about), std::move(run_in_background));
  place->arrived_before = place->arrived.load(std::memory_order_relaxed);
  place->arrived_in_period = 0;
  place->in_period = {};
  place->time_before.fill({});
  place->kernels_before.fill(0);
  place->recomputed_in_period.fill(0);
  place->host_before = 0;
  place->may_discard_next.store(true, std::memory_order_relaxed);
  place->program.store(++programs_, std::memory_order_relaxed);
  place->last.store(now, std::memory_order_relaxed);
  for (auto& at : place->last_at) at.store(0, std::memory_order_relaxed);
  for (auto& bytes : place->demand)
    bytes.store(plan::WorkingSet::kUnknown.count(), std::memory_order_relaxed);
  // The last store: a thread that reads `life` finds the fields above.
  place->life.store(thread.life.get(), std::memory_order_release);
  return place;
}

// A free tracker, or that of a thread that has ended; else the one that has been idle longest, if for long.
ProgramTracker* ProgramTrackers::place_for(Stamp now) {
  ProgramTracker* oldest = nullptr;
  for (ProgramTracker& tracker : trackers_) {
    if (tracker.is_over()) return &tracker;
    if (oldest == nullptr || tracker.last.load(std::memory_order_relaxed) < oldest->last) oldest = &tracker;
  }
  return oldest->last.load(std::memory_order_relaxed) + kForgotten < now ? oldest : nullptr;
}

const ProgramTracker* ProgramTrackers::shown_to(const ThreadState& thread) const {
  const ProgramTracker* found = nullptr;
  Stamp latest = 0;
  for (const ProgramTracker& tracker : trackers_) {
    const MutexLock lock(tracker.mutex);
    if (tracker.planner == nullptr || tracker.planner->cost().operators == 0) continue;
    const Stamp last = tracker.is_of(thread) ? kAllSoFar : tracker.last.load(std::memory_order_relaxed);
    if (last < latest) continue;
    latest = last;
    found = &tracker;
  }
  return found;
}

bool ProgramTrackers::others_at(NodeId node, const ThreadState& thread, Stamp now) const {
  return std::any_of(trackers_.begin(), trackers_.end(), [&](const ProgramTracker& tracker) {
    return !tracker.is_of(thread) && is_busy(tracker, tracker.last_at[index_of(node)], now);
  });
}

bool ProgramTrackers::is_busy(const ProgramTracker& tracker, const std::atomic<Stamp>& last, Stamp now) {
  if (tracker.is_over()) return false;
  const Stamp then = last.load(std::memory_order_relaxed);
  return then != 0 && then + kBusy >= now;
}

ProgramTracker* ProgramTrackers::of_program(int64_t program) {
  for (ProgramTracker& tracker : trackers_) {
    if (tracker.program.load(std::memory_order_relaxed) == program) return &tracker;
  }
  return nullptr;
}

void ProgramTrackers::arrived(BlockName block, Bytes size) {
  ProgramTracker* const its = block.none() ? nullptr : of_program(block.program());
  if (its != nullptr) its->arrived.fetch_add(size.count(), std::memory_order_relaxed);
}

Bytes ProgramTrackers::part(const ProgramTracker& tracker, NodeId node, Bytes space, Stamp now) const {
  std::array<Bytes, kFollowed> others;
  size_t count = 0;
  for (const ProgramTracker& other : trackers_) {
    if (&other == &tracker) continue;
    const Bytes wanted(other.demand[index_of(node)].load(std::memory_order_relaxed));
    const bool known = wanted != plan::WorkingSet::kUnknown;
    if (!is_busy(other, known ? other.last : other.last_at[index_of(node)], now)) continue;
    others[count++] = known ? wanted : space;
  }
  return fair_part(space, std::span(others.data(), count));
}

}  // namespace innkeeper
