#include "device/memory_users.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

namespace innkeeper {
namespace {

uintptr_t address_of(const void* data) { return reinterpret_cast<uintptr_t>(data); }

void merge(MemoryUsers::Users& into, const MemoryUsers::Users& more) {
  into.number = std::max(into.number, more.number);
  into.events.insert(into.events.end(), more.events.begin(), more.events.end());
}

// Removes duplicates: one event is a user of all memory that was freed after it.
void drop_twins(std::vector<Event>& events) {
  if (events.size() < 2) return;
  std::sort(events.begin(), events.end());
  events.erase(std::unique(events.begin(), events.end()), events.end());
}

}  // namespace

void MemoryUsers::freed(const void* data, Bytes size) {
  if (!watches()) return;
  MutexLock lock(mutex_);
  (void)add(data, size, count(), {});
}

bool MemoryUsers::freed(const void* data, Bytes size, std::span<const Event> users) {
  MutexLock lock(mutex_);
  if (unmapping_ != 0) return false;
  watching_.store(true, std::memory_order_relaxed);
  return add(data, size, 0, users);
}

MemoryUsers::Users MemoryUsers::take_for_copy(const void* data, Bytes size) {
  MutexLock lock(mutex_);
  watching_.store(true, std::memory_order_relaxed);
  bool all_known = false;
  Users users = cut(data, size, &all_known);
  if (!all_known) users.number = count();
  if (users.number == 0) return users;
  if (Event passed = marks_.find(users.number)) {
    users.events.push_back(std::move(passed));
    users.number = 0;
  }
  return users;
}

std::vector<Event> MemoryUsers::take_for_kernel(const void* data, Bytes size) {
  if (!watches()) return {};
  MutexLock lock(mutex_);
  return cut(data, size).events;
}

void MemoryUsers::recorded(uint64_t number, Event event) {
  if (!watches()) return;
  MutexLock lock(mutex_);
  marks_.add(number, std::move(event));
}

std::vector<Event> MemoryUsers::begin_unmapping() {
  MutexLock lock(mutex_);
  ++unmapping_;
  Users all;
  for (const auto& [begin, range] : ranges_) merge(all, range.users);
  drop_twins(all.events);
  return std::move(all.events);
}

void MemoryUsers::end_unmapping() {
  MutexLock lock(mutex_);
  --unmapping_;
}

size_t MemoryUsers::size() const {
  MutexLock lock(mutex_);
  return ranges_.size();
}

// Removes and returns the users of these bytes. Parts of ranges beyond either end stay. All steps that may
// throw come first.
MemoryUsers::Users MemoryUsers::cut(const void* data, Bytes size, bool* all_known) {
  const uintptr_t begin = address_of(data);
  const uintptr_t end = begin + static_cast<uintptr_t>(size.count());
  auto first = ranges_.lower_bound(begin);
  if (first != ranges_.begin() && std::prev(first)->second.end > begin) --first;
  Users users;
  uintptr_t known = begin;  // End of the known bytes.
  auto last = first;
  for (; last != ranges_.end() && last->first < end; ++last) {
    if (last->first <= known) known = last->second.end;
    merge(users, last->second.users);
  }
  drop_twins(users.events);
  users.events.reserve(users.events.size() + 1);  // Reserves an element for take_for_copy().
  if (all_known != nullptr) *all_known = known >= end;
  if (first == last) return users;
  if (Range& rear = std::prev(last)->second; rear.end > end) {
    ranges_.emplace_hint(last, end, Range{rear.end, rear.users});
    rear.end = end;
  }
  if (first->first < begin) {
    first->second.end = begin;
    ++first;
  }
  ranges_.erase(first, ranges_.lower_bound(end));
  return users;
}

// Returns false if the note itself needs memory that is missing: then the users of these bytes are unknown.
bool MemoryUsers::add(const void* data, Bytes size, uint64_t number, std::span<const Event> named) {
  if (size <= Bytes(0)) return true;
  try {
    Users users = cut(data, size);  // Users that an owner left without querying them.
    users.number = std::max(users.number, number);
    for (const Event& event : named) {
      if (event != nullptr) users.events.push_back(event);
    }
    if (ranges_.size() >= many_) join_idle();
    const uintptr_t begin = address_of(data);
    ranges_.emplace(begin, Range{begin + static_cast<uintptr_t>(size.count()), std::move(users)});
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// Ranges whose users are done are known to be free: adjacent ones are joined.
void MemoryUsers::join_idle() {
  const uint64_t passed = marks_.passed();
  auto before = ranges_.end();  // The preceding idle range; end(): none.
  for (auto at = ranges_.begin(); at != ranges_.end();) {
    Users& users = at->second.users;
    if (users.number > passed || !std::all_of(users.events.begin(), users.events.end(), &is_done)) {
      before = ranges_.end();
      ++at;
      continue;
    }
    users = {};
    if (before != ranges_.end() && before->second.end == at->first) {
      before->second.end = at->second.end;
      at = ranges_.erase(at);
    } else {
      before = at++;
    }
  }
  many_ = std::max(kFew, 2 * ranges_.size());
}

}  // namespace innkeeper
