// Whether an operator gives the same bits when it runs again on the same operands. Its schema cannot tell,
// because it depends on the kernels that a library chooses. A kind of operator is an operator with one dtype
// of its result. Each kind runs twice before its results are recomputed for the first time, once a plan
// intends to recompute them. If the two runs differ, the kind is never recomputed.
//
// Thread safety: all functions.
#pragma once

#include <c10/core/ScalarType.h>

#include <atomic>
#include <cstdint>

namespace innkeeper::torch_layer {

class RepeatedBits {
 public:
  enum class Found : uint8_t { unknown, same, other };

  Found of(c10::ScalarType dtype) const {
    if ((same_.load(std::memory_order_relaxed) & bit(dtype)) != 0) return Found::same;
    return (other_.load(std::memory_order_relaxed) & bit(dtype)) != 0 ? Found::other : Found::unknown;
  }
  // Requests a trial: a plan would have recomputed the kind's results.
  void want(c10::ScalarType dtype) { wanted_.fetch_or(bit(dtype), std::memory_order_relaxed); }
  bool is_wanted(c10::ScalarType dtype) const {
    return (wanted_.load(std::memory_order_relaxed) & bit(dtype)) != 0;
  }
  // Records a trial's finding; the first finding stays. Returns true if this one was the first.
  bool found(c10::ScalarType dtype, Found what) {
    std::atomic<uint64_t>& bits = what == Found::same ? same_ : other_;
    return (bits.fetch_or(bit(dtype), std::memory_order_relaxed) & bit(dtype)) == 0;
  }
  // Counts a trial that found no free space. Returns true if no further trial may run, for any dtype.
  bool failed() { return failures_.fetch_add(1, std::memory_order_relaxed) + 1 >= kMostFailures; }

 private:
  static constexpr int kMostFailures = 8;
  static uint64_t bit(c10::ScalarType dtype) { return uint64_t{1} << static_cast<unsigned>(dtype); }

  // One bit for each dtype.
  std::atomic<uint64_t> wanted_{0};
  std::atomic<uint64_t> same_{0};
  std::atomic<uint64_t> other_{0};  // Also set if trials found no free space too often.
  std::atomic<int> failures_{0};
};

static_assert(static_cast<int>(c10::ScalarType::NumOptions) <= 64);

// Number of operator kinds that gave other bits in this process.
int64_t kinds_with_other_bits();

}  // namespace innkeeper::torch_layer
