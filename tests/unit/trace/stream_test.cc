#include "trace/stream.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/at_points.h"
#include "support/stream_events.h"
#include "trace/record.h"
#include "trace/recorder.h"

namespace innkeeper::trace {
namespace {

using test::read_all;
using test::tell;
using test::Told;

constexpr NodeId kGpu{1};

Told operation(size_t accesses, uint64_t first = 1) {
  Told told{.kind = EventKind::operation, .name = "aten::add.Tensor", .node = kGpu};
  for (size_t i = 0; i < accesses; ++i)
    told.accesses.push_back({BlockId{first + i}, KiB(4), AccessKind::read});
  return told;
}

Told freed(uint64_t block) { return {.kind = EventKind::freed, .block = BlockId{block}}; }

TEST(Stream, ReadsBackWhatWasWritten) {
  Stream stream;
  const std::vector<Told> all = {
      {.kind = EventKind::operation,
       .name = "aten::mm",
       .node = NodeId{31},
       .work = {.flops = 2.5e18, .bytes = 4096, .kernels = 3},
       .accesses = {{BlockId{(uint64_t{1} << 62) - 1}, Bytes(0), AccessKind::read},
                    {BlockId{0}, Bytes(INT64_MAX), AccessKind::write},
                    {BlockId{7}, KiB(1), AccessKind::born}}},
      {.kind = EventKind::operation, .name = "n", .node = kNoNode},
      freed(UINT64_MAX),
      {.kind = EventKind::mark, .text = "step"},
      {.kind = EventKind::mark, .text = ""},
      {.kind = EventKind::mark, .text = "eight by"},
      {.kind = EventKind::mark, .text = std::string("no\0end\n", 7)},
  };
  stream.start(100);
  for (const Told& told : all) {
    const Told seen = tell(stream, told);
    EXPECT_TRUE(told.kind != EventKind::operation || seen == told) << "on the thread itself, at once";
  }
  EXPECT_EQ(read_all(stream.stop(), stream), all);
}

TEST(Stream, AnOperationWithoutANameIsForItsThreadAlone) {
  Stream stream;
  stream.start(2);
  const auto access = [](size_t) { return RecordedAccess{BlockId{5}, KiB(1), AccessKind::write}; };
  const Event event = stream.operation({}, kGpu, 1, access);
  EXPECT_EQ(event.order, 0u);
  EXPECT_EQ(event.accesses.size(), 1u);
  tell(stream, freed(1));
  tell(stream, freed(2));
  Merged events = stream.stop();
  EXPECT_EQ(events.dropped(), 0u) << "nor does it count";
  EXPECT_EQ(read_all(std::move(events), stream), (std::vector<Told>{freed(1), freed(2)}));
}

// Rings of each small size, so that events end at each place of the ring.
TEST(Stream, ARingThatIsFullIsEmptiedAndNothingIsLost) {
  for (const size_t words : {8, 16, 32, 64}) {
    Stream stream(words);
    stream.start(1000);
    std::vector<Told> all;
    for (uint64_t i = 0; i < 300; ++i) {
      all.push_back(i % 7 == 6 ? freed(i) : operation(i % 5, i));
      tell(stream, all.back());
    }
    EXPECT_EQ(read_all(stream.stop(), stream), all) << words;
  }
}

TEST(Stream, AnEventLargerThanTheRingIsInItsPlace) {
  Stream stream(16);
  stream.start(100);
  const std::vector<Told> all = {freed(1),
                                 operation(5000),
                                 freed(2),
                                 operation(3),
                                 operation(4),
                                 freed(3),
                                 {.kind = EventKind::mark, .text = std::string(1000, 'x')},
                                 freed(4)};
  for (const Told& told : all) {
    const Told seen = tell(stream, told);
    EXPECT_TRUE(told.kind != EventKind::operation || seen == told);
  }
  EXPECT_EQ(read_all(stream.stop(), stream), all);
}

// A thread finds an active record, and takes its event's place when the next record begins.
TEST(Stream, AnEventOfTwoRecordsLeavesNoHole) {
  Stream stream;
  std::atomic<bool> found{false}, go_on{false}, told_two{false};
  std::thread::id writer;
  const test::AtPoints points([&](std::string_view name) {
    const bool writes = std::this_thread::get_id() == writer;
    if (name == "order" && writes && !found.exchange(true)) go_on.wait(false);
    if (name == "record" && found) {
      go_on = true;
      go_on.notify_all();
      told_two.wait(false);
    }
  });
  stream.start(100);
  std::atomic<bool> named{false};
  std::thread thread([&] {
    named.wait(false);
    for (const uint64_t number : {1, 2}) stream.freed(BlockId{number});
    told_two = true;
    told_two.notify_all();
  });
  writer = thread.get_id();
  named = true;
  named.notify_all();
  while (!found) std::this_thread::yield();
  stream.stop();
  stream.start(100);
  thread.join();
  writer = std::this_thread::get_id();
  stream.freed(BlockId{3});
  const std::vector<Told> seen = read_all(stream.stop(), stream);
  const std::vector<Told> all = {freed(1), freed(2), freed(3)};
  ASSERT_FALSE(seen.empty());
  ASSERT_LE(seen.size(), all.size());
  EXPECT_TRUE(std::equal(seen.rbegin(), seen.rend(), all.rbegin())) << "the last ones, without a hole";
}

// A program that runs for days writes into the same words.
TEST(Stream, EventsThatNoRecordNeedsAreOverwritten) {
  Stream stream(64);
  for (uint64_t i = 0; i < 1000; ++i) {
    const Told told = operation(i % 40, i);
    EXPECT_EQ(tell(stream, told), told);
  }
  stream.start(10);
  tell(stream, freed(1));
  EXPECT_EQ(read_all(stream.stop(), stream), std::vector<Told>{freed(1)}) << "and is in no later record";
}

TEST(Stream, TheFirstThatHappenedAreKeptWhicheverThread) {
  Stream stream;
  stream.start(3);
  tell(stream, freed(1));
  std::thread([&] { tell(stream, freed(2)); }).join();
  tell(stream, freed(3));
  const Told beyond = operation(2);
  EXPECT_EQ(tell(stream, beyond), beyond) << "its thread reads it all the same";
  std::thread([&] { tell(stream, freed(5)); }).join();
  Merged events = stream.stop();
  EXPECT_EQ(events.dropped(), 2u);
  EXPECT_EQ(read_all(std::move(events), stream), (std::vector<Told>{freed(1), freed(2), freed(3)}));
}

TEST(Stream, AThreadThatEndsLeavesItsWordsAndItsRing) {
  Stream stream;
  stream.start(100);
  std::vector<Told> all;
  for (uint64_t i = 0; i < 50; ++i) {
    all.push_back(freed(i));
    std::thread([&] { tell(stream, all.back()); }).join();
  }
  EXPECT_EQ(stream.rings(), 1u) << "each takes that of the one before";
  EXPECT_EQ(read_all(stream.stop(), stream), all);
}

TEST(Stream, AThreadThatGoesOnKeepsItsRing) {
  Stream stream;
  stream.start(100);
  tell(stream, freed(0));
  std::thread([&] { tell(stream, freed(1)); }).join();
  tell(stream, freed(2));
  EXPECT_EQ(stream.rings(), 2u);
  EXPECT_EQ(read_all(stream.stop(), stream), (std::vector<Told>{freed(0), freed(1), freed(2)}));
}

// A starting thread may get the ring of one that has just ended, and then appends to that ring's records.
TEST(Stream, ThreadsThatComeAndGoAtOnceWriteInOrder) {
  constexpr int kThreads = 4000;
  Stream stream(8);
  stream.start(SIZE_MAX);
  std::vector<std::thread> makers;
  for (int maker = 0; maker < 4; ++maker)
    makers.emplace_back([&] {
      for (int i = 0; i < kThreads; ++i) std::thread([&] { stream.freed(BlockId{1}); }).join();
    });
  for (std::thread& maker : makers) maker.join();
  EXPECT_EQ(read_all(stream.stop(), stream).size(), 4u * kThreads);
}

// A thread-local tensor dies when its thread has no thread-local objects any more.
TEST(Stream, AThreadWritesWhileItEnds) {
  static Stream stream(8);
  struct Last {
    ~Last() {
      // The new thread writes into the ring that this thread had.
      std::thread([] { stream.freed(BlockId{99}); }).join();
      for (uint64_t i = 0; i < 10; ++i) stream.freed(BlockId{100 + i});
    }
    uint64_t used = 0;
  };
  stream.start(100);
  std::vector<Told> all = {freed(1)};
  std::thread([] {
    static thread_local Last last;
    last.used = 1;
    // From here on the thread has a ring, which is destroyed before `last`.
    stream.freed(BlockId{last.used});
  }).join();
  for (uint64_t i = 0; i < 11; ++i) all.push_back(freed(99 + i));
  EXPECT_EQ(stream.rings(), 2u) << "it has another one now";
  EXPECT_EQ(read_all(stream.stop(), stream), all);
}

TEST(Stream, OneThreadWritesToSeveral) {
  Stream one;
  Stream other;
  one.start(10);
  other.start(10);
  for (uint64_t i = 0; i < 6; ++i) tell(i % 2 == 0 ? one : other, freed(i));
  EXPECT_EQ(one.rings() + other.rings(), 2u);
  EXPECT_EQ(read_all(one.stop(), one), (std::vector<Told>{freed(0), freed(2), freed(4)}));
  EXPECT_EQ(read_all(other.stop(), other), (std::vector<Told>{freed(1), freed(3), freed(5)}));
}

TEST(Stream, ARecordBeginsWithNothingOfTheOneBefore) {
  Stream stream(16);
  stream.start(100);
  for (uint64_t i = 0; i < 20; ++i) tell(stream, freed(i));
  stream.start(100);  // Restarts the stream in the middle of a recording.
  tell(stream, freed(20));
  EXPECT_EQ(read_all(stream.stop(), stream), std::vector<Told>{freed(20)});
  tell(stream, freed(21));
  Merged none = stream.stop();
  EXPECT_EQ(none.dropped(), 0u);
  EXPECT_TRUE(read_all(std::move(none), stream).empty());
}

TEST(Stream, NamesGoByTheirLetters) {
  Stream stream;
  std::string text = "aten::mm";
  const OperatorName first = stream.name(text);
  text = "aten::bm";
  EXPECT_NE(stream.name(text), first);
  EXPECT_EQ(stream.name("aten::mm"), first);
  OperatorName others{0};
  std::thread([&] { others = stream.name("aten::mm"); }).join();
  EXPECT_EQ(others, first) << "of all threads";
  EXPECT_EQ(stream.names(), (std::vector<std::string_view>{"", "aten::mm", "aten::bm"}));
}

// The child has copies of the rings, and of a mutex that another thread may have held. Its thread waits for
// nothing when it ends, and the parent's record goes on.
TEST(Stream, AChildOfForkEndsAndTheParentsRecordGoesOn) {
  // A thread-local of the forking thread: it is destroyed after the stream's own, and ends the child there.
  struct EndsTheChild {
    ~EndsTheChild() {
      if (getpid() != parent) _exit(thread_is_ending ? 0 : 1);
    }
    const pid_t parent = getpid();
  };
  Stream stream(8);
  stream.start(SIZE_MAX);
  std::atomic<bool> through{false};
  std::thread busy([&] {
    while (!through) stream.freed(BlockId{1});
  });
  for (int i = 0; i < 20; ++i) {
    pid_t child = -1;
    std::thread([&] {
      static thread_local EndsTheChild last;
      stream.freed(BlockId{2});
      child = fork();
      if (child == 0) alarm(20);
    }).join();
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  through = true;
  busy.join();
  const std::vector<Told> all = read_all(stream.stop(), stream);
  EXPECT_EQ(std::count(all.begin(), all.end(), freed(2)), 20);
}

// Random events of threads that follow each other at random, in rings of all sizes: a reader gets the written
// events in order, and the text agrees.
TEST(Stream, WhateverIsWrittenIsReadBack) {
  std::mt19937_64 random(11);
  const auto upto = [&random](uint64_t most) { return random() % (most + 1); };
  for (int round = 0; round < 60; ++round) {
    Stream stream(size_t{8} << upto(6));
    const auto shared = std::shared_ptr<Stream>(std::shared_ptr<Stream>(), &stream);
    Recorder recorder(shared);
    const size_t most = upto(400);
    stream.start(most);
    std::vector<Told> all;
    const size_t count = upto(400);
    for (size_t i = 0; i < count; ++i) {
      Told told;
      switch (upto(3)) {
        case 0: told = freed(upto(1'000'000)); break;
        case 1:
          told = {.kind = EventKind::mark, .text = std::string(upto(40), static_cast<char>('a' + upto(20)))};
          break;
        default:
          told = {.kind = EventKind::operation,
                  .name = "op" + std::to_string(upto(30)),
                  .node = NodeId{static_cast<uint8_t>(upto(31))}};
          if (upto(1) == 0)
            told.work = {static_cast<double>(upto(1 << 30)), static_cast<double>(upto(1 << 30)),
                         static_cast<int64_t>(1 + upto(9))};
          for (uint64_t accesses = upto(upto(9) == 0 ? 100 : 4); accesses > 0; --accesses)
            told.accesses.push_back({BlockId{upto(1 << 20)}, Bytes(static_cast<int64_t>(upto(1 << 30))),
                                     std::array{AccessKind::read, AccessKind::write, AccessKind::born,
                                                AccessKind::pure}[upto(3)]});
      }
      all.push_back(std::move(told));
    }
    // Each thread writes a series of events, then the next thread does.
    for (size_t begin = 0; begin < count;) {
      const size_t end = std::min<size_t>(count, begin + 1 + upto(60));
      const auto run = [&] {
        for (; begin < end; ++begin) tell(stream, all[begin]);
      };
      if (upto(1) == 0)
        run();
      else
        std::thread(run).join();
    }
    all.resize(std::min(count, most));
    if (round % 2 == 0) {
      EXPECT_EQ(read_all(stream.stop(), stream), all) << round;
      continue;
    }
    const Result<AccessRecord> record = parse_record(recorder.stop());
    ASSERT_TRUE(record.ok()) << record.status().message();
    ASSERT_EQ(record.value().entries.size(), all.size() + (count > most ? 1 : 0));
    for (size_t i = 0; i < all.size(); ++i) {
      const RecordEntry& entry = record.value().entries[i];
      const auto accesses = record.value().of(entry);
      const bool operation = all[i].kind == EventKind::operation;
      EXPECT_EQ((Told{.kind = entry.kind,
                      .name = operation ? entry.text : "",
                      .node = all[i].node,
                      .work = entry.work,
                      .accesses = {accesses.begin(), accesses.end()},
                      .block = entry.block,
                      .text = operation ? "" : entry.text}),
                all[i]);
    }
  }
}

}  // namespace
}  // namespace innkeeper::trace
