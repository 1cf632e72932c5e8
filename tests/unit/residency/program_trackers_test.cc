// Ownership of blocks and programs by threads, and the division of a node's memory among programs.
#include "residency/books/program_trackers.h"

#include <gtest/gtest.h>

#include "residency/block/thread_state.h"

namespace innkeeper {
namespace {

TEST(ProgramTrackers, BytesThatOneProgramDoesNotNeedGoToTheOthers) {
  const auto part = [](int64_t space, std::vector<int64_t> others) {
    const std::vector<Bytes> wanted(others.begin(), others.end());
    return fair_part(Bytes(space), wanted).count();
  };
  EXPECT_EQ(part(90, {}), 90);
  EXPECT_EQ(part(90, {90}), 45);
  EXPECT_EQ(part(90, {1000}), 45) << "nobody has more than an equal part of one who wants all";
  EXPECT_EQ(part(90, {30}), 60);
  EXPECT_EQ(part(90, {45}), 45);
  EXPECT_EQ(part(90, {10, 90}), 40);
  EXPECT_EQ(part(90, {90, 10}), 40) << "in whatever order they stand";
  EXPECT_EQ(part(90, {50, 80}), 30);
  EXPECT_EQ(part(90, {10, 10, 10}), 60);
  EXPECT_EQ(part(0, {10}), 0);
}

TEST(ProgramTrackers, PartsNeverAddUpToMoreThanTheSpace) {
  for (const auto& wants :
       std::vector<std::vector<int64_t>>{{10, 50, 90}, {30, 30, 30}, {5, 5, 500}, {99, 1}}) {
    int64_t used = 0;
    for (size_t i = 0; i < wants.size(); ++i) {
      std::vector<Bytes> others;
      for (size_t k = 0; k < wants.size(); ++k) {
        if (k != i) others.emplace_back(wants[k]);
      }
      used += std::min(wants[i], fair_part(Bytes(100), others).count());
    }
    EXPECT_LE(used, 100);
  }
}

TEST(ProgramTrackers, ANameSaysWhoseItIs) {
  const BlockName name(BlockName::kMostPrograms, (int64_t{1} << BlockName::kNameBits) - 1,
                       BlockName::kMostTimes);
  EXPECT_GT(name.packed(), 0);
  EXPECT_EQ(name.program(), BlockName::kMostPrograms);
  EXPECT_EQ(name.name(), (int64_t{1} << BlockName::kNameBits) - 1);
  EXPECT_EQ(name.times(), BlockName::kMostTimes);
  EXPECT_TRUE(BlockName().none());
  EXPECT_FALSE(BlockName(1, 1, 0).none());
}

ProgramTracker* place_of(ProgramTrackers& trackers, ThreadState& thread, Stamp now = 1) {
  ProgramTracker* const place = trackers.of_thread(thread);
  const auto no_space = [](const ProgramTracker&, NodeId) { return Bytes(0); };
  return place != nullptr ? place : trackers.give_place(thread, now, no_space, {});
}

// Number of the operator at which a thread got a place, at most `operators`; 0 if it got none.
int first_place(ProgramTrackers& trackers, ThreadState& thread, int operators, Stamp now = 1) {
  for (int i = 1; i <= operators; ++i) {
    if (place_of(trackers, thread, now) != nullptr) return i;
  }
  return 0;
}

TEST(ProgramTrackers, TheFirstProgramIsFollowedAtOnceAndOthersOnceTheyAreLong) {
  ProgramTrackers trackers;
  ThreadState first;
  ThreadState second;
  EXPECT_EQ(first_place(trackers, first, 1), 1);
  EXPECT_EQ(first_place(trackers, second, 100), 0) << "a few operators are no program";
  EXPECT_GT(first_place(trackers, second, 1000), 0);
  EXPECT_NE(place_of(trackers, first, 1), place_of(trackers, second, 1));
  EXPECT_TRUE(trackers.of_thread(second) != nullptr);
}

TEST(ProgramTrackers, APlaceIsGivenAwayOnlyOnceItsProgramHasLongDoneNothing) {
  ProgramTrackers trackers;
  std::array<ThreadState, 9> threads;
  for (size_t i = 0; i < 8; ++i) EXPECT_GT(first_place(trackers, threads.at(i), 1000), 0);
  EXPECT_EQ(first_place(trackers, threads.at(8), 1000), 0) << "all places are taken";
  ProgramTracker* const idle = place_of(trackers, threads.at(3), 1);
  const int64_t program = idle->program;
  for (ProgramTracker& tracker : trackers.all()) tracker.last = &tracker == idle ? 1 : 1'000'000;
  EXPECT_GT(first_place(trackers, threads.at(8), 1000, 1'000'000), 0);
  EXPECT_TRUE(idle->is_of(threads.at(8)));
  EXPECT_EQ(trackers.of_program(program), nullptr) << "what it knew is nobody's";
  EXPECT_FALSE(trackers.of_thread(threads.at(3)) != nullptr);
}

TEST(ProgramTrackers, WhatAThreadThatEndedHadIsFreeAtOnce) {
  ProgramTrackers trackers;
  std::array<std::unique_ptr<ThreadState>, 9> threads;
  for (auto& thread : threads) thread = std::make_unique<ThreadState>();
  for (size_t i = 0; i < 8; ++i) EXPECT_GT(first_place(trackers, *threads.at(i), 1000), 0);
  const NodeId node{1};
  ProgramTracker* const ending = place_of(trackers, *threads.at(3));
  ending->last_at.at(1) = 1;
  EXPECT_TRUE(trackers.others_at(node, *threads.at(0), 2));
  threads.at(3).reset();
  EXPECT_TRUE(ending->is_over());
  EXPECT_FALSE(trackers.others_at(node, *threads.at(0), 2)) << "nothing more is asked for it";
  ThreadState next;  // It may get the place of the ended thread.
  EXPECT_EQ(trackers.of_thread(next), nullptr) << "it is another's program";
  EXPECT_GT(first_place(trackers, next, 1000), 0);
  EXPECT_TRUE(ending->is_of(next));
}

TEST(ProgramTrackers, OthersCountWhereTheyAreBusy) {
  ProgramTrackers trackers;
  ThreadState first;
  ThreadState second;
  ProgramTracker* const one = place_of(trackers, first, 1);
  ASSERT_GT(first_place(trackers, second, 1000), 0);
  ProgramTracker* const two = place_of(trackers, second, 1);
  const NodeId node{1};
  EXPECT_EQ(trackers.part(*one, node, Bytes(100), 50), Bytes(100));
  EXPECT_FALSE(trackers.others_at(node, first, 50));
  two->last = 50;
  two->last_at.at(1) = 50;
  EXPECT_EQ(trackers.part(*one, node, Bytes(100), 60), Bytes(50)) << "what it wants is not known";
  EXPECT_TRUE(trackers.others_at(node, first, 60));
  EXPECT_FALSE(trackers.others_at(node, second, 60)) << "itself is no other";
  two->demand.at(1) = 20;
  EXPECT_EQ(trackers.part(*one, node, Bytes(100), 60), Bytes(80));
  EXPECT_EQ(trackers.part(*one, NodeId{2}, Bytes(100), 60), Bytes(100)) << "another node";
  two->demand.at(2) = 30;
  EXPECT_EQ(trackers.part(*one, NodeId{2}, Bytes(100), 60), Bytes(70)) << "where it does nothing itself";
  two->demand.at(1) = 0;
  EXPECT_EQ(trackers.part(*one, node, Bytes(100), 60), Bytes(100)) << "it has no use for any";
  EXPECT_EQ(trackers.part(*one, node, Bytes(100), 1'000'000), Bytes(100)) << "long ago";
}

}  // namespace
}  // namespace innkeeper
