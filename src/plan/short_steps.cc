#include "plan/short_steps.h"

#include <algorithm>
#include <bit>

namespace innkeeper::plan {
namespace {

constexpr int64_t kNotShort = -(int64_t{1} << 61);

std::vector<int64_t> spare_of(const std::vector<int64_t>& lacking) {
  std::vector<int64_t> spare;
  spare.reserve(lacking.size());
  for (const int64_t bytes : lacking) spare.push_back(bytes > 0 ? -bytes : kNotShort);
  return spare;
}

}  // namespace

ShortSteps::ShortSteps(const std::vector<int64_t>& lacking)
    : spare_(spare_of(lacking)), sums_(lacking.size() + 1) {
  for (size_t i = 1; i < sums_.size(); ++i) {
    sums_[i] += lacking[i - 1] > 0 ? 1 : 0;
    const size_t above = i + (i & -i);
    if (above < sums_.size()) sums_[above] += sums_[i];
  }
}

void ShortSteps::relieve(int64_t first, int64_t last, int64_t bytes) {
  spare_.add(first, last, bytes);
  for (int64_t step = last; (step = spare_.last_above(-1, first, step)) >= 0;) {
    spare_.add(step, step + 1, kNotShort);
    for (size_t i = static_cast<size_t>(step) + 1; i < sums_.size(); i += i & -i) --sums_[i];
  }
}

int64_t ShortSteps::before(int64_t step) const {
  int64_t sum = 0;
  for (auto i = static_cast<size_t>(step); i > 0; i -= i & -i) sum += sums_[i];
  return sum;
}

int64_t ShortSteps::at(int64_t number) const {
  size_t found = 0;
  for (size_t width = std::bit_floor(sums_.size()); width > 0; width /= 2) {
    if (found + width >= sums_.size() || sums_[found + width] > number) continue;
    found += width;
    number -= sums_[found];
  }
  return static_cast<int64_t>(found);
}

}  // namespace innkeeper::plan
