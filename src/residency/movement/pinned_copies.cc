#include "residency/movement/pinned_copies.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace innkeeper {
namespace {

bool conflict(const HostRange& a, const HostRange& b) {
  if (!a.written && !b.written) return false;
  const auto a_begin = reinterpret_cast<uintptr_t>(a.data);
  const auto b_begin = reinterpret_cast<uintptr_t>(b.data);
  return a_begin < b_begin + b.size && b_begin < a_begin + a.size;
}

}  // namespace

Status PinnedCopies::order_after(Device& device, Queue queue, const HostRange& range) const {
  if (count_.load(std::memory_order_acquire) == 0) return {};
  std::vector<Event> before;
  {
    MutexLock lock(mutex_);
    for (const PinnedCopy& copy : copies_)
      if (conflict(copy.range, range)) before.push_back(copy.copied);
  }
  for (const Event& event : before) IK_RETURN_IF_ERROR(device.wait(queue, event));
  return {};
}

void PinnedCopies::add(const HostRange& range, Event copied) {
  if (copied == nullptr) return;
  MutexLock lock(mutex_);
  if (copies_.size() >= many_) {
    std::erase_if(copies_, [](const PinnedCopy& copy) { return is_done(copy.copied); });
    many_ = std::max(kMany, 2 * copies_.size());
  }
  copies_.push_back({range, std::move(copied)});
  count_.store(copies_.size(), std::memory_order_release);
}

}  // namespace innkeeper
