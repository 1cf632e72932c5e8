#include "torch/memory/moved_copies.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/thread_annotations.h"
#include "base/types.h"
#include "device/checksum.h"
#include "torch/process/fork.h"
#include "torch/process/runtime_state.h"

namespace innkeeper::torch_layer {
namespace {

constexpr Bytes kMost = MiB(64);       // Limit of one copy, and of all.
constexpr Bytes kKeptAtOnce = MiB(1);  // A larger tensor is kept at its second move.
constexpr size_t kMostEntries = 128;   // Small, because find() searches linearly.
constexpr int64_t kPartOfBudgets = 16;

// Identity of a view of a CPU tensor's bytes, and the device of its copy.
struct Place {
  explicit Place(const at::Tensor& x, c10::Device to)
      : storage(x.storage().unsafeGetStorageImpl()),
        offset(x.storage_offset()),
        dtype(x.scalar_type()),
        device(to),
        sizes(x.sizes().vec()),
        strides(x.strides().vec()) {}
  bool operator==(const Place&) const = default;

  const c10::StorageImpl* storage;
  int64_t offset;
  c10::ScalarType dtype;
  c10::Device device;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

struct Entry {
  Place place;
  c10::weak_intrusive_ptr<c10::StorageImpl> alive;  // Expired: the address may belong to another storage now.
  at::Tensor copy;                                  // Undefined if the tensor was moved once and not kept.
  uint64_t sum = 0;
  uint64_t used = 0;
};

bool can_be_kept(const at::Tensor& x) {
  return x.layout() == c10::kStrided && !x.is_nested() && x.has_storage() && x.numel() > 0 && !x.is_conj() &&
         !x.is_neg() && !x.unsafeGetTensorImpl()->is_python_dispatch() && x.is_non_overlapping_and_dense() &&
         Bytes(static_cast<int64_t>(x.nbytes())) <= kMost;
}

uint64_t sum_of(const at::Tensor& x) { return checksum(x.const_data_ptr(), x.nbytes()); }

Bytes space_for_copies() {
  Engine& engine = runtime().engine();
  int64_t all = 0;
  for (size_t i = 0; i < engine.node_count(); ++i)
    all += engine.budget(NodeId(static_cast<uint8_t>(i))).count();
  return std::min(kMost, Bytes(all / kPartOfBudgets));
}

class Copies {
 public:
  static Copies& self() {
    static auto& it = *new Copies;  // Leaked, because the runtime's last tensors may use it.
    return it;
  }

  struct Known {
    at::Tensor copy;
    uint64_t sum = 0;
  };
  std::optional<Known> find(const Place& place) {
    MutexLock lock(mutex_);
    for (Entry& entry : entries_) {
      if (!(entry.place == place) || entry.alive.expired()) continue;
      entry.used = ++clock_;
      return Known{entry.copy, entry.sum};
    }
    return std::nullopt;
  }

  void keep(Entry fresh, Bytes space) {
    std::vector<Entry> gone;  // Freed after the lock, because freeing a tensor may take other locks.
    MutexLock lock(mutex_);
    take_out(gone, [&](const Entry& entry) { return entry.alive.expired() || entry.place == fresh.place; });
    fresh.used = ++clock_;
    entries_.push_back(std::move(fresh));
    while (entries_.size() > kMostEntries || size() > space) {
      const auto oldest = std::min_element(entries_.begin(), entries_.end(),
                                           [](const auto& a, const auto& b) { return a.used < b.used; });
      gone.push_back(std::move(*oldest));
      entries_.erase(oldest);
    }
    count_.store(entries_.size(), std::memory_order_relaxed);
  }

  template <class Which>
  void forget(const Which& which) {
    if (count_.load(std::memory_order_relaxed) == 0) return;
    std::vector<Entry> gone;
    MutexLock lock(mutex_);
    take_out(gone, which);
    count_.store(entries_.size(), std::memory_order_relaxed);
  }

 private:
  Copies() { take_at_fork(mutex_); }

  Bytes size() const IK_REQUIRES(mutex_) {
    int64_t bytes = 0;
    for (const Entry& entry : entries_)
      if (entry.copy.defined()) bytes += static_cast<int64_t>(entry.copy.nbytes());
    return Bytes(bytes);
  }

  template <class Which>
  void take_out(std::vector<Entry>& gone, const Which& which) IK_REQUIRES(mutex_) {
    const auto first = std::stable_partition(entries_.begin(), entries_.end(),
                                             [&](const Entry& entry) { return !which(entry); });
    std::move(first, entries_.end(), std::back_inserter(gone));
    entries_.erase(first, entries_.end());
  }

  Mutex mutex_;
  std::vector<Entry> entries_ IK_GUARDED_BY(mutex_);
  uint64_t clock_ IK_GUARDED_BY(mutex_) = 0;
  std::atomic<size_t> count_ = 0;
};

}  // namespace

at::Tensor moved_copy(const at::Tensor& cpu_tensor, c10::Device device,
                      const std::function<at::Tensor()>& move) {
  if (!can_be_kept(cpu_tensor)) return move();
  const Place place(cpu_tensor, device);
  const auto known = Copies::self().find(place);
  if (known && known->copy.defined() && sum_of(cpu_tensor) == known->sum) return known->copy;
  Entry fresh{.place = place, .alive = cpu_tensor.storage().getWeakStorageImpl(), .copy = {}};
  const bool keeps = known || Bytes(static_cast<int64_t>(cpu_tensor.nbytes())) <= kKeptAtOnce;
  if (keeps) fresh.sum = sum_of(cpu_tensor);
  at::Tensor copy = move();
  if (keeps) fresh.copy = copy;
  Copies::self().keep(std::move(fresh), space_for_copies());
  return copy;
}

void forget_moved_copies() {
  Copies::self().forget([](const Entry&) { return true; });
}
void forget_copies_of_dead_tensors() {
  Copies::self().forget([](const Entry& entry) { return entry.alive.expired(); });
}

}  // namespace innkeeper::torch_layer
