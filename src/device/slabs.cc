#include "device/slabs.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "base/log.h"

namespace innkeeper {
namespace {

constexpr int64_t kMost = int64_t{1} << 46;  // Largest size that a process can map.

int64_t whole(int64_t size, int64_t of) { return (size + of - 1) / of * of; }

void* pointer(uintptr_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

Slabs::Slabs(std::string name, Options options) : name_(std::move(name)), options_(std::move(options)) {}

Slabs::~Slabs() { unmap(slabs_); }

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
  // The length is a multiple of the requested block: more blocks of the size are likely to follow.
  const int64_t least = whole(rounded, kPage);
  int64_t length = whole(whole(options_.slab.count(), rounded), kPage);
  tidy_for(length);
  Result<void*> mapped = map_pages(length, pages());
  if (!mapped.ok()) {  // Empty slabs may hold the missing memory, or a whole slab may be too large.
    trim();
    length = least;
    mapped = map_pages(length, pages());
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
  free_.emplace(begin, length);
  by_size_.emplace(length, begin);
  held_ += length;
  empty_ += length;
  return cut(rounded);
}

void* Slabs::cut(int64_t size) {
  const auto fit = by_size_.lower_bound({size, 0});
  if (fit == by_size_.end()) return nullptr;
  const auto [whole, begin] = *fit;
  const uintptr_t end = begin + static_cast<uintptr_t>(size);
  // Steps that allocate come first: if one throws, the tables are unchanged.
  Ranges rest;
  Sizes rest_by_size;
  if (whole > size) {
    rest.emplace(end, whole - size);
    rest_by_size.emplace(whole - size, end);
  }
  Block& block = blocks_[begin];
  block = {size, free_.extract(begin), by_size_.extract(fit)};
  free_.merge(rest);
  by_size_.merge(rest_by_size);
  Slab& slab = slab_of(begin)->second;
  if (slab.live == 0) {
    empty_ -= slab.size;
    note_use();
  }
  slab.live += size;
  return pointer(begin);
}

Slabs::SlabMap::iterator Slabs::slab_of(uintptr_t address) { return std::prev(slabs_.upper_bound(address)); }

Bytes Slabs::free(void* data) {
  auto begin = reinterpret_cast<uintptr_t>(data);
  SlabMap departing;
  Block was;
  {
    MutexLock lock(mutex_);
    const auto found = blocks_.find(begin);
    IK_CHECK(found != blocks_.end(), "memory is freed that is not live");
    was = std::move(found->second);
    blocks_.erase(found);
    const auto home = slab_of(begin);
    Slab& slab = home->second;
    uintptr_t end = begin + static_cast<uintptr_t>(was.size);
    // Another slab may be adjacent to this one; each is unmapped separately.
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
    const auto size = static_cast<int64_t>(end - begin);
    was.range.key() = begin;
    was.range.mapped() = size;
    was.place.value() = {size, begin};
    free_.insert(std::move(was.range));
    by_size_.insert(std::move(was.place));
    slab.live -= was.size;
    if (slab.live == 0) {
      note_use();
      slab.emptied = ++tick_;
      empty_ += slab.size;
      departing = take_beyond(0);
    }
  }
  unmap(departing);
  return Bytes(was.size);
}

Bytes Slabs::live() const {
  MutexLock lock(mutex_);
  int64_t total = 0;
  for (const auto& [begin, block] : blocks_) total += block.size;
  return Bytes(total);
}

Bytes Slabs::held() const {
  MutexLock lock(mutex_);
  return Bytes(held_);
}

Bytes Slabs::size_of(const void* data) const {
  MutexLock lock(mutex_);
  const auto found = blocks_.find(reinterpret_cast<uintptr_t>(data));
  return Bytes(found == blocks_.end() ? 0 : found->second.size);
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
  SlabMap departing;
  {
    MutexLock lock(mutex_);
    departing = take_empty(0);
  }
  unmap(departing);
  int64_t gone = 0;
  for (const auto& [begin, slab] : departing) gone += slab.size;
  return Bytes(gone);
}

void Slabs::tidy() { tidy_for(0); }

void Slabs::tidy_for(int64_t more) {
  SlabMap departing;
  {
    MutexLock lock(mutex_);
    note_use();
    departing = take_beyond(more);
  }
  unmap(departing);
}

void Slabs::note_use() {
  if (options_.linger.count() == 0) return;
  const auto now = options_.now();
  if (const auto past = now - since_; past >= options_.linger) {
    most_before_ = past < 2 * options_.linger ? most_ : 0;
    most_ = 0;
    since_ = now;
  }
  most_ = std::max(most_, held_ - empty_);
}

Slabs::SlabMap Slabs::take_beyond(int64_t more) {
  const int64_t lately = std::max(most_, most_before_) - (held_ - empty_) - more;
  const int64_t keep = options_.keep.count();
  return empty_ > std::max(keep, lately) ? take_empty(std::max(keep / 2, lately)) : SlabMap();
}

Slabs::SlabMap Slabs::take_empty(int64_t target) {
  SlabMap departing;
  while (empty_ > target) {
    auto oldest = slabs_.end();
    for (auto slab = slabs_.begin(); slab != slabs_.end(); ++slab) {
      if (slab->second.live != 0) continue;
      if (oldest == slabs_.end() || slab->second.emptied < oldest->second.emptied) oldest = slab;
    }
    const auto [begin, size] = std::pair(oldest->first, oldest->second.size);
    by_size_.erase({size, begin});  // An empty slab is one range.
    free_.erase(begin);
    held_ -= size;
    empty_ -= size;
    departing.insert(slabs_.extract(oldest));
  }
  return departing;
}

void Slabs::unmap(const SlabMap& departing) {
  for (const auto& [begin, slab] : departing) {
    const auto size = static_cast<size_t>(slab.size);
    if (slab.locked && options_.hooks.unlock && !options_.hooks.unlock(pointer(begin), size)) continue;
    unmap_pages(pointer(begin), slab.size, pages());
  }
}

}  // namespace innkeeper
