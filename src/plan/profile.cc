#include "plan/profile.h"

#include <algorithm>
#include <utility>

namespace innkeeper::plan {
namespace {

constexpr int64_t kNothing = INT64_MIN / 2;

}  // namespace

Profile::Profile(const std::vector<int64_t>& numbers) : count_(numbers.size()) {
  while (width_ < count_ + 2) width_ *= 2;
  most_.assign(2 * width_, kNothing);
  added_.assign(2 * width_, 0);
  std::copy(numbers.begin(), numbers.end(), most_.begin() + static_cast<std::ptrdiff_t>(leaf(0)));
  for (size_t node = width_ - 1; node > 0; --node) sum_up(node);
}

void Profile::add(int64_t first, int64_t last, int64_t number) {
  if (first >= last) return;
  const auto add_to = [&](size_t node) {
    most_[node] += number;
    added_[node] += number;
  };
  // The leaves next to the range: all nodes of a level between their ancestors belong to it.
  size_t left = leaf(first - 1);
  size_t right = leaf(last);
  while ((left ^ right) != 1) {
    if ((left & 1) == 0) add_to(left + 1);
    if ((right & 1) == 1) add_to(right - 1);
    sum_up(left /= 2);
    sum_up(right /= 2);
  }
  while ((left /= 2) > 0) sum_up(left);
}

int64_t Profile::most(int64_t first, int64_t last) const {
  if (first >= last) return kNothing;
  int64_t of_left = kNothing;
  int64_t of_right = kNothing;
  size_t left = leaf(first - 1);
  size_t right = leaf(last);
  while ((left ^ right) != 1) {
    if ((left & 1) == 0) of_left = std::max(of_left, most_[left + 1]);
    if ((right & 1) == 1) of_right = std::max(of_right, most_[right - 1]);
    of_left += added_[left /= 2];
    of_right += added_[right /= 2];
  }
  int64_t most = std::max(of_left, of_right);
  while ((left /= 2) > 0) most += added_[left];
  return most;
}

int64_t Profile::where() const {
  size_t node = 1;
  while (node < width_) node = most_[2 * node] >= most_[2 * node + 1] ? 2 * node : 2 * node + 1;
  return step(node);
}

int64_t Profile::last_above(int64_t limit, int64_t first, int64_t last) const {
  return last_above(1, limit, leaf(first) - width_, leaf(last) - width_, 0, width_);
}

int64_t Profile::last_above(size_t node, int64_t limit, size_t first, size_t last, size_t from,
                            size_t to) const {
  if (last <= from || to <= first || most_[node] <= limit) return -1;
  if (node >= width_) return step(node);
  limit -= added_[node];
  const size_t middle = (from + to) / 2;
  const int64_t found = last_above(2 * node + 1, limit, first, last, middle, to);
  return found >= 0 ? found : last_above(2 * node, limit, first, last, from, middle);
}

std::vector<int64_t> Profile::numbers() const {
  std::vector<int64_t> all(count_);
  std::vector<std::pair<size_t, int64_t>> waiting{{1, 0}};
  while (!waiting.empty()) {
    const auto [node, above] = waiting.back();
    waiting.pop_back();
    if (node < width_) {
      waiting.emplace_back(2 * node, above + added_[node]);
      waiting.emplace_back(2 * node + 1, above + added_[node]);
    } else if (node >= leaf(0) && node < leaf(static_cast<int64_t>(count_))) {
      all[static_cast<size_t>(step(node))] = most_[node] + above;
    }
  }
  return all;
}

void Profile::sum_up(size_t node) {
  most_[node] = std::max(most_[2 * node], most_[2 * node + 1]) + added_[node];
}

}  // namespace innkeeper::plan
