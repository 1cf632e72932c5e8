#include "device/slabs.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "base/log.h"
#include "device/mapping.h"

namespace innkeeper {
namespace {

constexpr int64_t kMost = int64_t{1} << 46;  // what a process can map

int64_t whole(int64_t size, int64_t of) { return (size + of - 1) / of * of; }

void* pointer(uintptr_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

Slabs::Slabs(std::string name, Options options) : name_(std::move(name)), options_(std::move(options)) {}

Slabs::~Slabs() {
  std::vector<Departing> departing;
  {
    MutexLock lock(mutex_);
    for (const auto& [begin, slab] : slabs_) departing.push_back({pointer(begin), slab.size, slab.locked});
    slabs_.clear();
  }
  unmap(departing);
}

Result<void*> Slabs::allocate(Bytes size) {
  IK_CHECK(size.count() > 0, "an allocation needs a size");
  const int64_t rounded = round_up(size).count();
  if (rounded > kMost) {
    return Status(Code::out_of_memory,
                  name_ + ": asked " + to_string(size) + ", more than a process can map");
  }
  {
    MutexLock lock(mutex_);
    if (void* data = cut(rounded)) return data;
  }
  // It takes a whole number of the block that asks: more of the kind are likely to follow.
  const int64_t least = whole(rounded, kPage);
  int64_t length = whole(whole(options_.slab.count(), rounded), kPage);
  Result<void*> mapped = map(length);
  if (!mapped.ok()) {  // what is empty may have been what was missing, or a whole slab too much
    trim();
    length = least;
    mapped = map(length);
  }
  if (!mapped.ok()) {
    return Status(Code::out_of_memory, name_ + ": asked " + to_string(size) + ", " + to_string(held()) +
                                           " held: " + mapped.status().message());
  }
  bool locked = false;
  if (options_.hooks.lock) {
    const Status status = options_.hooks.lock(mapped.value(), static_cast<size_t>(length));
    locked = status.ok();
    if (!locked) log(LogLevel::warn, name_ + ": memory stays pageable: " + status.message());
  }
  const auto begin = reinterpret_cast<uintptr_t>(mapped.value());
  MutexLock lock(mutex_);
  slabs_.emplace(begin, Slab{length, locked});
  held_ += length;
  empty_ += length;
  add_free(begin, length);
  return cut(rounded);
}

void* Slabs::cut(int64_t size) {
  const auto fit = by_size_.lower_bound({size, 0});
  if (fit == by_size_.end()) return nullptr;
  const auto [whole, begin] = *fit;
  by_size_.erase(fit);
  free_.erase(begin);
  if (whole > size) add_free(begin + static_cast<uintptr_t>(size), whole - size);
  blocks_.emplace(begin, size);
  Slab& slab = slab_of(begin)->second;
  if (slab.live == 0) empty_ -= slab.size;
  slab.live += size;
  return pointer(begin);
}

void Slabs::add_free(uintptr_t begin, int64_t size) {
  free_.emplace(begin, size);
  by_size_.emplace(size, begin);
}

std::map<uintptr_t, Slabs::Slab>::iterator Slabs::slab_of(uintptr_t address) {
  return std::prev(slabs_.upper_bound(address));
}

Bytes Slabs::free(void* data) {
  auto begin = reinterpret_cast<uintptr_t>(data);
  std::vector<Departing> departing;
  int64_t freed = 0;
  {
    MutexLock lock(mutex_);
    const auto found = blocks_.find(begin);
    IK_CHECK(found != blocks_.end(), "memory is freed that is not live");
    freed = found->second;
    blocks_.erase(found);
    const auto home = slab_of(begin);
    Slab& slab = home->second;
    uintptr_t end = begin + static_cast<uintptr_t>(freed);
    // Another slab may lie next to this one; each is unmapped for itself.
    auto after = free_.lower_bound(begin);
    if (after != free_.begin()) {
      const auto before = std::prev(after);
      if (before->first >= home->first && before->first + static_cast<uintptr_t>(before->second) == begin) {
        begin = before->first;
        by_size_.erase({before->second, before->first});
        free_.erase(before);
      }
    }
    if (after != free_.end() && after->first == end &&
        end < home->first + static_cast<uintptr_t>(slab.size)) {
      end += static_cast<uintptr_t>(after->second);
      by_size_.erase({after->second, after->first});
      free_.erase(after);
    }
    add_free(begin, static_cast<int64_t>(end - begin));
    slab.live -= freed;
    if (slab.live == 0) {
      slab.emptied = ++tick_;
      empty_ += slab.size;
      if (empty_ > options_.keep.count()) departing = take_empty(options_.keep.count() / 2);
    }
  }
  unmap(departing);
  return Bytes(freed);
}

Bytes Slabs::live() const {
  MutexLock lock(mutex_);
  int64_t total = 0;
  for (const auto& [begin, size] : blocks_) total += size;
  return Bytes(total);
}

Bytes Slabs::held() const {
  MutexLock lock(mutex_);
  return Bytes(held_);
}

Bytes Slabs::size_of(const void* data) const {
  MutexLock lock(mutex_);
  const auto found = blocks_.find(reinterpret_cast<uintptr_t>(data));
  return Bytes(found == blocks_.end() ? 0 : found->second);
}

bool Slabs::contains(const void* data) const {
  const auto address = reinterpret_cast<uintptr_t>(data);
  MutexLock lock(mutex_);
  const auto after = slabs_.upper_bound(address);
  if (after == slabs_.begin()) return false;
  const auto& [begin, slab] = *std::prev(after);
  return address - begin < static_cast<uintptr_t>(slab.size);
}

Bytes Slabs::trim() {
  std::vector<Departing> departing;
  {
    MutexLock lock(mutex_);
    departing = take_empty(0);
  }
  unmap(departing);
  int64_t gone = 0;
  for (const Departing& slab : departing) gone += slab.size;
  return Bytes(gone);
}

std::vector<Slabs::Departing> Slabs::take_empty(int64_t target) {
  std::vector<std::map<uintptr_t, Slab>::iterator> empty;
  for (auto slab = slabs_.begin(); slab != slabs_.end(); ++slab) {
    if (slab->second.live == 0) empty.push_back(slab);
  }
  std::sort(empty.begin(), empty.end(),
            [](const auto& a, const auto& b) { return a->second.emptied < b->second.emptied; });
  std::vector<Departing> departing;
  for (const auto& slab : empty) {
    if (empty_ <= target) break;
    const auto [begin, was] = *slab;
    departing.push_back({pointer(begin), was.size, was.locked});
    by_size_.erase({was.size, begin});  // its one range
    free_.erase(begin);
    held_ -= was.size;
    empty_ -= was.size;
    slabs_.erase(slab);
  }
  return departing;
}

Result<void*> Slabs::map(int64_t size) {
  return map_pages(size, options_.blank ? Pages::blank : Pages::huge);
}

void Slabs::unmap(const std::vector<Departing>& departing) {
  for (const auto& [data, size, locked] : departing) {
    if (locked && options_.hooks.unlock && !options_.hooks.unlock(data, static_cast<size_t>(size))) continue;
    unmap_pages(data, size, options_.blank ? Pages::blank : Pages::huge);
  }
}

}  // namespace innkeeper
