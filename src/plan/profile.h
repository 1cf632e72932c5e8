// Numbers by step of a period, with additions to ranges of steps and range maxima.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace innkeeper::plan {

// A segment tree over the steps. Ranges are from `first` to before `last`. O(log steps) for each call, but
// numbers(): O(steps).
class Profile {
 public:
  explicit Profile(const std::vector<int64_t>& numbers);

  void add(int64_t first, int64_t last, int64_t number);

  // The maximum of a range; of an empty one, less than any number.
  int64_t most(int64_t first, int64_t last) const;
  int64_t most() const { return most_[1]; }
  // A step that has the maximum.
  int64_t where() const;
  // The last step of the range whose number exceeds `limit`; -1: there is none.
  int64_t last_above(int64_t limit, int64_t first, int64_t last) const;

  std::vector<int64_t> numbers() const;

 private:
  size_t leaf(int64_t step) const { return width_ + 1 + static_cast<size_t>(step); }
  int64_t step(size_t leaf) const { return static_cast<int64_t>(leaf - width_) - 1; }
  int64_t last_above(size_t node, int64_t limit, size_t first, size_t last, size_t from, size_t to) const;
  void sum_up(size_t node);

  size_t count_;
  size_t width_ = 1;            // Number of leaves. The first is no step, nor is the one after the last step.
  std::vector<int64_t> most_;   // Maximum below a node, with the additions at it, without those above it.
  std::vector<int64_t> added_;  // Added to all leaves below a node.
};

}  // namespace innkeeper::plan
