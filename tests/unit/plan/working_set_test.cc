// Working set of the last operators while no period is known.
#include "plan/working_set.h"

#include <gtest/gtest.h>

#include <array>

namespace innkeeper::plan {
namespace {

constexpr NodeId kFirst{1};
constexpr NodeId kSecond{2};

std::array<int64_t, 2> kib_of(const History& history, int64_t operators) {
  const std::array<Bytes, kMaxNodes> found = working_set_of_last(history, operators);
  return {found[1].count() / 1024, found[2].count() / 1024};
}

TEST(WorkingSet, IsTheMostThatIsAliveAtATime) {
  History history;
  EXPECT_EQ(kib_of(history, 100), (std::array<int64_t, 2>{0, 0}));
  const Name weight = history.name();
  for (int i = 0; i < 50; ++i) {
    const Name first = history.name();
    const Name second = history.name();
    history.ended(kFirst, std::array{Touch{weight, KiB(3)}, Touch{first, KiB(1), true}});
    history.ended(kFirst, std::array{Touch{first, KiB(1)}, Touch{second, KiB(2), true}});
    history.died(first);
    history.died(second);
  }
  EXPECT_EQ(kib_of(history, 100), (std::array<int64_t, 2>{6, 0}));
  const Name large = history.name();
  history.ended(kSecond, std::array{Touch{large, KiB(64), true}, Touch{weight, KiB(3)}});
  EXPECT_EQ(kib_of(history, 100), (std::array<int64_t, 2>{6, 67})) << "what is used at both counts at both";
  for (int i = 0; i < 200; ++i) history.ended(kFirst, std::array{Touch{weight, KiB(3)}});
  EXPECT_EQ(kib_of(history, 100), (std::array<int64_t, 2>{3, 0})) << "of late";
  EXPECT_EQ(kib_of(history, 1'000'000), (std::array<int64_t, 2>{6, 67})) << "as far back as anybody knows";
}

}  // namespace
}  // namespace innkeeper::plan
