#include "device/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace innkeeper {
Arena::Arena(Options options) : options_(std::move(options)) {}

Arena::~Arena() {
  std::vector<Departing> departing;
  {
    MutexLock lock(mutex_);
    for (const auto& [address, size] : mappings_)
      departing.push_back({reinterpret_cast<void*>(address), size});
    mappings_.clear();
  }
  unmap(departing);
}

Arena::Class Arena::class_of(int64_t rounded) {
  const auto units = static_cast<uint64_t>(rounded / kAlignment);
  if (units <= 8) return {units - 1, rounded};
  // log2 of the step, which is 1/8 of the power of two below.
  const int shift = std::bit_width(units - 1) - 4;
  const uint64_t steps = ((units - 1) >> shift) + 1;  // Number of steps, 9 to 16.
  return {8 + 8 * static_cast<size_t>(shift) + (steps - 9),
          static_cast<int64_t>(steps << shift) * kAlignment};
}

Bytes Arena::class_size(Bytes rounded) { return Bytes(class_of(rounded.count()).size); }

Result<Arena::Piece> Arena::allocate(Bytes size, Order order) {
  IK_CHECK(size.count() > 0, "an allocation needs a size");
  const int64_t rounded = round_up(size).count();
  if (rounded > int64_t{1} << 46) {
    return Status(Code::out_of_memory,
                  options_.name + ": asked " + to_string(size) + ", more than a process can map");
  }
  const Class wanted = class_of(rounded);
  {
    MutexLock lock(mutex_);
    Shelf& shelf = shelves_[wanted.index];
    shelf.last_use = ++tick_;
    void* data = take_warm(shelf, order);
    const bool warm = data != nullptr;
    if (!warm && !shelf.cold.empty()) {
      data = shelf.cold.back();
      shelf.cold.pop_back();
    }
    if (data != nullptr) {
      if (warm && wanted.size > kSmall) cached_ -= wanted.size;
      blocks_.find(data)->second.live = rounded;
      return Piece{data, !warm};
    }
  }
  Result<void*> data = wanted.size <= kSmall ? carve(wanted) : map_or_trim(wanted.size);
  if (!data.ok()) {
    MutexLock lock(mutex_);
    return Status(Code::out_of_memory, options_.name + ": asked " + to_string(size) + ", " +
                                           std::to_string(mappings_.size()) +
                                           " mappings held: " + data.status().message());
  }
  MutexLock lock(mutex_);
  blocks_[data.value()] = Block{wanted, rounded};
  return Piece{data.value(), true};
}

void* Arena::take_warm(Shelf& shelf, Order order) {
  const bool busy = shelf.warm.empty() || (order == Order::oldest && !shelf.busy.empty());
  std::deque<void*>& from = busy ? shelf.busy : shelf.warm;
  if (from.empty()) return nullptr;
  if (!busy && order == Order::newest) {
    void* const data = from.back();
    from.pop_back();
    return data;
  }
  void* const data = from.front();
  from.pop_front();
  return data;
}

Bytes Arena::free(void* data, bool busy) {
  Bytes size;
  {
    MutexLock lock(mutex_);
    const auto found = blocks_.find(data);
    IK_CHECK(found != blocks_.end() && found->second.live > 0, "memory is freed that is not live");
    size = Bytes(found->second.live);
    found->second.live = 0;
    const Class size_class = found->second.size_class;
    Shelf& shelf = shelves_[size_class.index];
    (busy ? shelf.busy : shelf.warm).push_back(data);
    shelf.last_use = ++tick_;
    if (size_class.size <= kSmall) return size;
    cached_ += size_class.size;
    if (cached_ <= options_.cache_limit.count()) return size;
  }
  shrink_cache(options_.cache_limit.count() / 2);
  return size;
}

Bytes Arena::live() const {
  MutexLock lock(mutex_);
  int64_t total = 0;
  for (const auto& [data, block] : blocks_) total += block.live;
  return Bytes(total);
}

Bytes Arena::cached() const {
  MutexLock lock(mutex_);
  return Bytes(cached_);
}

Bytes Arena::size_of(const void* data) const {
  MutexLock lock(mutex_);
  const auto found = blocks_.find(data);
  return Bytes(found == blocks_.end() ? 0 : found->second.live);
}

bool Arena::contains(const void* data) const {
  const auto address = reinterpret_cast<uintptr_t>(data);
  MutexLock lock(mutex_);
  auto after = mappings_.upper_bound(address);
  if (after == mappings_.begin()) return false;
  const auto& [start, size] = *std::prev(after);
  return address - start < static_cast<uintptr_t>(size);
}

Bytes Arena::trim() {
  const Bytes before = cached();
  shrink_cache(0);
  return before;
}

void Arena::shrink_cache(int64_t target) {
  std::vector<Departing> departing;
  {
    MutexLock lock(mutex_);
    std::vector<size_t> order;
    for (size_t i = class_of(kSmall).index + 1; i < kClasses; ++i) {
      if (!shelves_[i].warm.empty() || !shelves_[i].busy.empty()) order.push_back(i);
    }
    std::sort(order.begin(), order.end(), [this](size_t a, size_t b) IK_REQUIRES(mutex_) {
      return shelves_[a].last_use < shelves_[b].last_use;
    });
    for (size_t index : order) {
      // The oldest pieces go first: the most recently freed one is the likeliest to be used again.
      while (cached_ > target) {
        void* data = take_warm(shelves_[index], Order::oldest);
        if (data == nullptr) break;
        const auto mapping = mappings_.find(reinterpret_cast<uintptr_t>(data));
        departing.push_back({data, mapping->second});
        cached_ -= mapping->second;
        if (options_.keep_mapped) continue;
        mappings_.erase(mapping);
        blocks_.erase(data);
      }
    }
  }
  if (options_.settle && !departing.empty()) options_.settle();
  if (!options_.keep_mapped) return unmap(departing);
  for (const auto& [data, size] : departing) ::madvise(data, static_cast<size_t>(size), MADV_DONTNEED);
  MutexLock lock(mutex_);
  for (const Departing& gone : departing) {
    shelves_[blocks_.find(gone.data)->second.size_class.index].cold.push_back(gone.data);
  }
}

Result<void*> Arena::map(int64_t size) {
  Result<void*> data = map_pages(size, pages());
  if (!data.ok()) return data;
  MutexLock lock(mutex_);
  mappings_[reinterpret_cast<uintptr_t>(data.value())] = size;
  return data;
}

void Arena::unmap(const std::vector<Departing>& departing) {
  for (const auto& [data, size] : departing) unmap_pages(data, size, pages());
}

Result<void*> Arena::map_or_trim(int64_t size) {
  Result<void*> data = map(size);
  if (data.ok() || trim() == Bytes(0)) return data;
  return map(size);  // The shelves may have held the missing memory.
}

Result<void*> Arena::carve(Class wanted) {
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (slab_left_ >= wanted.size) {
        void* data = slab_;
        slab_ += wanted.size;
        slab_left_ -= wanted.size;
        return data;
      }
    }
    Result<void*> slab = map_or_trim(kSlab);
    if (!slab.ok()) return slab.status();
    MutexLock lock(mutex_);
    slab_ = static_cast<std::byte*>(slab.value());
    slab_left_ = kSlab;
  }
}

}  // namespace innkeeper
