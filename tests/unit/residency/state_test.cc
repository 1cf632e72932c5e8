// The table of replica states, row by row, against the invariants it must keep.
#include "residency/block/state.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace innkeeper {
namespace {

constexpr ReplicaState kStates[] = {ReplicaState::absent, ReplicaState::arriving, ReplicaState::shared,
                                    ReplicaState::owned};
constexpr ReplicaEvent kEvents[] = {
    ReplicaEvent::born,       ReplicaEvent::fetch_begin, ReplicaEvent::fetch_end,
    ReplicaEvent::fetch_fail, ReplicaEvent::share,       ReplicaEvent::write,
    ReplicaEvent::drop,       ReplicaEvent::promote,     ReplicaEvent::free};
static_assert(std::size(kStates) == kReplicaStates && std::size(kEvents) == kReplicaEvents);

// Every legal transition, with its reason. All others are illegal.
struct Row {
  ReplicaState before;
  ReplicaEvent event;
  ReplicaState after;
  const char* why;
};

constexpr Row kLegal[] = {
    {ReplicaState::absent, ReplicaEvent::born, ReplicaState::owned,
     "memory without a copy is the only one (I1, I2)"},
    {ReplicaState::absent, ReplicaEvent::fetch_begin, ReplicaState::arriving, "nobody reads it yet (I5)"},
    {ReplicaState::absent, ReplicaEvent::free, ReplicaState::absent, "a block dies on all nodes at once"},
    {ReplicaState::arriving, ReplicaEvent::fetch_end, ReplicaState::shared,
     "its source is valid as well (I2, I5)"},
    {ReplicaState::arriving, ReplicaEvent::fetch_fail, ReplicaState::absent, "its source stayed (I5, I7)"},
    {ReplicaState::arriving, ReplicaEvent::free, ReplicaState::absent, "the block dies"},
    {ReplicaState::shared, ReplicaEvent::share, ReplicaState::shared, "one copy more"},
    {ReplicaState::shared, ReplicaEvent::write, ReplicaState::owned, "the others were dropped (I2)"},
    {ReplicaState::shared, ReplicaEvent::drop, ReplicaState::absent, "another valid one stays (I1)"},
    {ReplicaState::shared, ReplicaEvent::promote, ReplicaState::owned, "all others went"},
    {ReplicaState::shared, ReplicaEvent::free, ReplicaState::absent, "the block dies"},
    {ReplicaState::owned, ReplicaEvent::share, ReplicaState::shared, "another will be valid too (I2)"},
    {ReplicaState::owned, ReplicaEvent::write, ReplicaState::owned, "it is the only one already"},
    {ReplicaState::owned, ReplicaEvent::promote, ReplicaState::owned, "it is the only one already"},
    {ReplicaState::owned, ReplicaEvent::free, ReplicaState::absent, "the block dies"},
};

std::optional<Row> legal(ReplicaState state, ReplicaEvent event) {
  for (const Row& row : kLegal) {
    if (row.before == state && row.event == event) return row;
  }
  return std::nullopt;
}

TEST(ReplicaStates, EveryCellOfTheTableIsAsListed) {
  for (const ReplicaState state : kStates) {
    for (const ReplicaEvent event : kEvents) {
      const std::string what = std::string(to_string(state)) + " + " + to_string(event);
      const std::optional<Row> row = legal(state, event);
      if (row.has_value()) {
        EXPECT_EQ(next_state(state, event), static_cast<uint8_t>(row->after)) << what << ": " << row->why;
      } else {
        EXPECT_EQ(next_state(state, event), kIllegal) << what;
      }
    }
  }
}

TEST(ReplicaStates, I1OnlyAbsentReplicasAreBornAndOwnersAreNeverDropped) {
  for (const ReplicaState state : kStates) {
    EXPECT_EQ(next_state(state, ReplicaEvent::born) != kIllegal, state == ReplicaState::absent);
  }
  // The only copy is dropped with its block alone.
  for (const ReplicaEvent event : kEvents) {
    const bool goes = next_state(ReplicaState::owned, event) == static_cast<uint8_t>(ReplicaState::absent);
    EXPECT_EQ(goes, event == ReplicaEvent::free) << to_string(event);
  }
}

TEST(ReplicaStates, I2NothingIsOwnedBesideAnother) {
  for (const ReplicaState state : kStates) {
    // After a share, and after the end of a fetch, there are two replicas.
    EXPECT_NE(next_state(state, ReplicaEvent::share), static_cast<uint8_t>(ReplicaState::owned));
    EXPECT_NE(next_state(state, ReplicaEvent::fetch_end), static_cast<uint8_t>(ReplicaState::owned));
    // A writer owns the block afterwards.
    if (const uint8_t after = next_state(state, ReplicaEvent::write); after != kIllegal) {
      EXPECT_EQ(after, static_cast<uint8_t>(ReplicaState::owned));
    }
  }
}

TEST(ReplicaStates, I5AnArrivingReplicaIsNeitherReadNorSharedNorWritten) {
  EXPECT_FALSE(is_valid(ReplicaState::arriving));
  for (const ReplicaEvent event : {ReplicaEvent::share, ReplicaEvent::write, ReplicaEvent::drop,
                                   ReplicaEvent::promote, ReplicaEvent::fetch_begin}) {
    EXPECT_EQ(next_state(ReplicaState::arriving, event), kIllegal) << to_string(event);
  }
}

TEST(ReplicaStates, EveryStateAndEventHasAName) {
  for (const ReplicaState state : kStates) EXPECT_STRNE(to_string(state), "");
  for (const ReplicaEvent event : kEvents) EXPECT_STRNE(to_string(event), "");
}

}  // namespace
}  // namespace innkeeper
