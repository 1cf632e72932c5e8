// The tree over a period's steps, compared with a plain list of numbers.
#include "plan/profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace innkeeper::plan {
namespace {

class Both {
 public:
  explicit Both(std::vector<int64_t> numbers) : numbers_(std::move(numbers)), profile_(numbers_) {}

  void add(int64_t first, int64_t last, int64_t number) {
    for (int64_t step = first; step < last; ++step) at(step) += number;
    profile_.add(first, last, number);
  }

  void expect_equal() const {
    ASSERT_EQ(profile_.numbers(), numbers_);
    const int64_t most = *std::max_element(numbers_.begin(), numbers_.end());
    ASSERT_EQ(profile_.most(), most);
    ASSERT_EQ(at(profile_.where()), most);
  }

  void expect_equal(int64_t first, int64_t last, int64_t limit) const {
    int64_t most = INT64_MIN;
    int64_t above = -1;
    for (int64_t step = first; step < last; ++step) {
      most = std::max(most, at(step));
      if (at(step) > limit) above = step;
    }
    ASSERT_EQ(profile_.most(first, last), most) << first << " to " << last;
    ASSERT_EQ(profile_.last_above(limit, first, last), above) << first << " to " << last << ", " << limit;
  }

 private:
  int64_t& at(int64_t step) { return numbers_[static_cast<size_t>(step)]; }
  int64_t at(int64_t step) const { return numbers_[static_cast<size_t>(step)]; }

  std::vector<int64_t> numbers_;
  Profile profile_;
};

TEST(Profile, IsAListOfNumbersWhateverIsAddedToItsRanges) {
  std::minstd_rand random(7);
  const auto below = [&random](int64_t end) {
    return std::uniform_int_distribution<int64_t>(0, end)(random);
  };
  for (const int64_t steps : {1, 2, 3, 5, 6, 7, 14, 15, 16, 30, 61, 62, 63, 64, 100}) {
    SCOPED_TRACE(steps);
    std::vector<int64_t> numbers(static_cast<size_t>(steps));
    for (int64_t& number : numbers) number = below(200) - 100;
    Both both(numbers);
    both.expect_equal();
    for (int i = 0; i < 300 && !testing::Test::HasFatalFailure(); ++i) {
      const int64_t first = below(steps - 1);
      const int64_t last = first + 1 + below(steps - first - 1);
      both.add(first, last, below(60) - 30);
      both.expect_equal();
      const int64_t from = below(steps - 1);
      both.expect_equal(from, from + 1 + below(steps - from - 1), below(200) - 100);
    }
  }
}

TEST(Profile, OfAnEmptyRangeHasNothing) {
  Profile profile({3, 1});
  profile.add(1, 1, 100);
  profile.add(0, 0, 100);
  profile.add(2, 2, 100);
  EXPECT_EQ(profile.numbers(), (std::vector<int64_t>{3, 1}));
  EXPECT_LT(profile.most(1, 1), -(int64_t{1} << 60));
  EXPECT_EQ(profile.last_above(0, 1, 1), -1);
}

}  // namespace
}  // namespace innkeeper::plan
