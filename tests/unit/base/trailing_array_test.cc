// An object and its array are one piece of memory with one life.
#include "base/trailing_array.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <utility>

namespace innkeeper {
namespace {

int alive = 0;

struct Item {
  Item() noexcept { ++alive; }
  ~Item() { --alive; }
  int value = 7;
};

struct Head : TrailingArray<Head, Item> {
  explicit Head(int its_value) : value(its_value) {
    if (its_value < 0) throw std::invalid_argument("negative");
  }
  int value;
};

TEST(TrailingArray, ItemsLiveAsLongAsTheirObject) {
  for (const size_t count : {0, 1, 2, 100}) {
    Head::Owner head = Head::make(count, 5);
    EXPECT_EQ(alive, static_cast<int>(count));
    EXPECT_EQ(head->value, 5);
    for (size_t i = 0; i < count; ++i) head->items()[i].value += static_cast<int>(i);
    for (size_t i = 0; i < count; ++i)
      EXPECT_EQ(std::as_const(*head).items()[i].value, 7 + static_cast<int>(i));
    head.reset();
    EXPECT_EQ(alive, 0);
  }
}

TEST(TrailingArray, NothingIsLeftOfOneThatCannotBeMade) {
  EXPECT_THROW(Head::make(3, -1), std::invalid_argument);  // The address sanitizer checks its memory.
  EXPECT_EQ(alive, 0);
}

}  // namespace
}  // namespace innkeeper
