// The set of steps with a shortage of free space, compared with a plain list.
#include "plan/short_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace innkeeper::plan {
namespace {

TEST(ShortSteps, AreThoseThatLackSomethingUntilTheyAreRelieved) {
  std::minstd_rand random(7);
  const auto below = [&random](int64_t end) {
    return std::uniform_int_distribution<int64_t>(0, end)(random);
  };
  for (const int64_t steps : {1, 2, 3, 7, 8, 9, 31, 32, 33, 100}) {
    SCOPED_TRACE(steps);
    std::vector<int64_t> lacking(static_cast<size_t>(steps));
    for (int64_t& bytes : lacking) bytes = below(300) - 100;
    ShortSteps found(lacking);
    for (int i = 0; i < 60; ++i) {
      for (int64_t step = 0; step <= steps; ++step) {
        int64_t next = step;
        while (next < steps && lacking[static_cast<size_t>(next)] <= 0) ++next;
        int64_t last = step - 1;
        while (last >= 0 && lacking[static_cast<size_t>(last)] <= 0) --last;
        ASSERT_EQ(found.next(step), next) << step;
        ASSERT_EQ(found.last_before(step), last) << step;
        ASSERT_EQ(found.count(step, steps), std::count_if(lacking.begin() + step, lacking.end(),
                                                          [](int64_t bytes) { return bytes > 0; }));
      }
      const int64_t first = below(steps - 1);
      const int64_t last = first + 1 + below(steps - first - 1);
      const int64_t bytes = below(40);
      for (int64_t step = first; step < last; ++step) lacking[static_cast<size_t>(step)] -= bytes;
      found.relieve(first, last, bytes);
    }
  }
}

}  // namespace
}  // namespace innkeeper::plan
