#include "torch/memory/address_space.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <iterator>

#include "base/check.h"
#include "base/types.h"
#include "torch/memory/stray_access.h"

namespace innkeeper::torch_layer {
namespace {

constexpr size_t kChunk = size_t{64} << 30;
constexpr size_t kSmallestChunk = size_t{1} << 20;
// A range of at least 1/kOwnMapping of a chunk gets a mapping of its own, which can be unmapped separately.
constexpr size_t kOwnMapping = 4;

size_t address_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return 0;
  return limit.rlim_cur;
}

// Under a limit of addresses, handles must not crowd out real memory: a chunk is 1/64 of the limit.
size_t chunk_for(size_t limit) {
  return limit == 0 ? kChunk : std::clamp(std::bit_floor(limit / 64), kSmallestChunk, kChunk);
}

std::string text(size_t size) { return to_string(Bytes(static_cast<int64_t>(size))); }

}  // namespace

AddressSpace::AddressSpace() : limit_(address_limit()), chunk_size_(chunk_for(limit_)) {}

AddressSpace::~AddressSpace() {
  MutexLock lock(mutex_);
  for (const auto& [begin, chunk] : chunks_) munmap(reinterpret_cast<void*>(begin), chunk.size);
}

AddressSpace::Class AddressSpace::class_of(size_t size) {
  const size_t granules = (size + kGranule - 1) / kGranule;
  if (granules <= 8) return {granules - 1, granules * kGranule};
  const auto octave = static_cast<size_t>(std::bit_width(granules - 1)) - 4;  // Octaves have 8 steps each.
  const size_t steps = ((granules - 1) >> octave) + 1;                        // In 9 to 16.
  return {8 * octave + steps - 1, (steps << octave) * kGranule};
}

AddressSpace::Range* AddressSpace::take(size_t size) {
  if (size == 0) return nullptr;
  const Class wanted = class_of(size);
  MutexLock lock(mutex_);
  if (wanted.index >= kClasses) throw_exhausted(size);
  std::vector<Range*>& free = free_[wanted.index];
  Range* range = nullptr;
  if (!free.empty()) {
    range = free.back();
    free.pop_back();
  } else {
    range = carve(wanted.size);
    if (range == nullptr) throw_exhausted(size);
  }
  live_ += wanted.size;
  return range;
}

void AddressSpace::give_back(Range* range) noexcept {
  if (range == nullptr) return;
  range->owner.store(nullptr, std::memory_order_relaxed);
  MutexLock lock(mutex_);
  free_[class_of(range->size).index].push_back(range);
  live_ -= range->size;
}

AddressSpace::Range* AddressSpace::carve(size_t size) {
  const auto alone = [this, size]() -> Range* {
    Chunks::value_type* chunk = map(size);
    return chunk == nullptr ? nullptr : &chunk->second.ranges.emplace_back(chunk->first, size);
  };
  if (size >= chunk_size_ / kOwnMapping) return alone();
  if (size > left_) {
    Chunks::value_type* chunk = map(chunk_size_);
    if (chunk == nullptr) return alone();
    shared_ = chunk;
    next_ = chunk->first;
    left_ = chunk_size_;
  }
  const uintptr_t begin = next_;
  next_ += size;
  left_ -= size;
  return &shared_->second.ranges.emplace_back(begin, size);
}

AddressSpace::Chunks::value_type* AddressSpace::map(size_t size) {
  void* data = MAP_FAILED;
  do {
    data = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  } while (data == MAP_FAILED && unmap_spare());
  if (data == MAP_FAILED) return nullptr;
  reserved_ += size;
  return &*chunks_.try_emplace(reinterpret_cast<uintptr_t>(data), size).first;
}

// Returns free ranges with a mapping of their own to the system, because other sizes may need their
// addresses.
bool AddressSpace::unmap_spare() {
  const size_t reserved_before = reserved_;
  for (size_t index = class_of(std::max(chunk_size_ / kOwnMapping, kGranule)).index; index < kClasses;
       ++index) {
    for (const Range* range : free_[index]) {
      const auto chunk = chunks_.find(range->begin);
      IK_CHECK(chunk != chunks_.end(), "a range of this size has a mapping of its own");
      munmap(range->address(), chunk->second.size);
      reserved_ -= chunk->second.size;
      chunks_.erase(chunk);
    }
    free_[index].clear();
  }
  return reserved_ != reserved_before;
}

AddressSpace::Range* AddressSpace::find(const void* address) {
  MutexLock lock(mutex_);
  return search(address);
}

AddressSpace::Range* AddressSpace::find_soon(const void* address) noexcept {
  constexpr int kTries = 50;
  for (int i = 0; i < kTries; ++i) {
    if (mutex_.try_lock()) {
      Range* const range = search(address);
      mutex_.unlock();
      return range;
    }
    constexpr timespec kMillisecond = {0, 1'000'000};
    nanosleep(&kMillisecond, nullptr);
  }
  return nullptr;
}

AddressSpace::Range* AddressSpace::search(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  auto chunk = chunks_.upper_bound(at);
  if (chunk == chunks_.begin()) return nullptr;
  std::deque<Range>& ranges = std::prev(chunk)->second.ranges;
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), at,
                       [](uintptr_t value, const Range& range) { return value < range.begin; });
  if (after == ranges.begin()) return nullptr;
  Range& range = *std::prev(after);
  return at - range.begin < range.size ? &range : nullptr;
}

size_t AddressSpace::reserved() const {
  MutexLock lock(mutex_);
  return reserved_;
}

size_t AddressSpace::live() const {
  MutexLock lock(mutex_);
  return live_;
}

void AddressSpace::throw_exhausted(size_t size) const {
  const std::string limit = limit_ == 0 ? "and the system gives no more"
                                        : "of at most " + text(limit_) + " (RLIMIT_AS, `ulimit -v`)";
  TORCH_CHECK_WITH(OutOfMemoryError, false, "no addresses for a managed tensor of ", size,
                   " bytes: ", text(live_), " are in use by tensors, ", text(reserved_), " reserved, ",
                   limit);
}

AddressSpace& address_space() {
  static AddressSpace& space = []() -> AddressSpace& {
    auto& made = *new AddressSpace;
    explain_stray_accesses(made);
    return made;
  }();
  return space;
}

}  // namespace innkeeper::torch_layer
