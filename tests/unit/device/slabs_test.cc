#include "device/slabs.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <tuple>

#include "device/mapping.h"
#include "support/allocator_threads.h"

namespace innkeeper {
namespace {

std::byte* take(Slabs& slabs, Bytes size) {
  Result<void*> block = slabs.allocate(size);
  EXPECT_TRUE(block.ok()) << block.status().message();
  return static_cast<std::byte*>(block.value());
}

TEST(Slabs, CutsBlocksToTheByteThatIsAccounted) {
  Slabs slabs("host", {});
  int64_t expected = 0;
  std::byte* next = nullptr;
  for (int64_t size : {1, 63, 64, 65, 577, 4097, 65536, 65537, 1 << 20, (3 << 20) + 1}) {
    std::byte* data = take(slabs, Bytes(size));
    const int64_t rounded = round_up(Bytes(size)).count();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(kAlignment), 0u);
    EXPECT_TRUE(next == nullptr || data == next) << "nothing lies between two blocks";
    std::memset(data, 1, static_cast<size_t>(rounded));
    EXPECT_EQ(slabs.size_of(data), Bytes(rounded));
    expected += rounded;
    next = data + rounded;
  }
  EXPECT_EQ(slabs.live(), Bytes(expected));
  EXPECT_EQ(slabs.held(), MiB(64));
}

TEST(Slabs, FreedNeighboursJoin) {
  Slabs slabs("host", {.slab = MiB(6)});
  std::byte* blocks[3] = {take(slabs, MiB(2)), take(slabs, MiB(2)), take(slabs, MiB(2))};
  for (const auto& [first, second, third] :
       {std::tuple(0, 1, 2), std::tuple(0, 2, 1), std::tuple(1, 0, 2), std::tuple(2, 1, 0)}) {
    for (const int each : {first, second, third}) slabs.free(blocks[each]);
    EXPECT_EQ(take(slabs, MiB(6)), blocks[0]) << first << second << third;
    EXPECT_EQ(slabs.held(), MiB(6)) << first << second << third;
    slabs.free(blocks[0]);
    for (std::byte*& block : blocks) block = take(slabs, MiB(2));
  }
}

// The system maps one slab next to another; a block must not span two, because each is unmapped on its own.
TEST(Slabs, NeighboursThatAreSlabsStayApart) {
  for (const bool downwards : {false, true}) {
    Slabs slabs("host", {.slab = MiB(2), .keep = MiB(64), .blank = true});
    std::set<std::byte*> blocks;
    for (int i = 0; i < 16; ++i) blocks.insert(take(slabs, MiB(2)));
    std::byte* lower = nullptr;
    for (std::byte* block : blocks) {
      if (blocks.contains(block + (2 << 20))) lower = block;
    }
    ASSERT_NE(lower, nullptr) << "no two slabs are neighbours";
    slabs.free(downwards ? lower + (2 << 20) : lower);
    slabs.free(downwards ? lower : lower + (2 << 20));
    EXPECT_NE(take(slabs, MiB(4)), lower);
  }
}

TEST(Slabs, TheSmallestRangeThatIsLargeEnoughIsTaken) {
  Slabs slabs("host", {.slab = MiB(64)});
  std::byte* wide = take(slabs, MiB(3));
  take(slabs, MiB(1));
  std::byte* narrow = take(slabs, MiB(2));
  take(slabs, MiB(1));
  std::byte* equal = take(slabs, MiB(2));
  take(slabs, MiB(1));
  for (std::byte* each : {wide, equal, narrow}) slabs.free(each);
  EXPECT_EQ(take(slabs, MiB(2)), narrow) << "of equal ones that at the lowest address";
  EXPECT_EQ(take(slabs, MiB(2)), equal);
  EXPECT_EQ(take(slabs, MiB(2)), wide);
}

TEST(Slabs, ASlabTakesAWholeNumberOfTheBlockThatAsks) {
  Slabs slabs("host", {.slab = MiB(4)});
  take(slabs, Bytes((9 << 20) + 1));
  EXPECT_EQ(slabs.held(), MiB(9) + KiB(4)) << "one, in pages";
  std::byte* first = take(slabs, MiB(3));
  EXPECT_EQ(slabs.held(), MiB(15) + KiB(4)) << "two";
  EXPECT_EQ(take(slabs, MiB(3)), first + (3 << 20));
  EXPECT_EQ(slabs.held(), MiB(15) + KiB(4));
}

TEST(Slabs, EmptySlabsAreKeptUpToABound) {
  Slabs slabs("host", {.slab = MiB(2), .keep = MiB(8)});
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(take(slabs, MiB(2)));
  std::byte* first = blocks.front();
  for (int i = 0; i < 4; ++i) slabs.free(blocks[static_cast<size_t>(i)]);
  EXPECT_EQ(slabs.held(), MiB(16)) << "8 MiB are kept";
  EXPECT_TRUE(slabs.contains(first));
  // 10 MiB are empty, so slabs are unmapped down to 4 MiB, the longest empty ones first.
  slabs.free(blocks[4]);
  EXPECT_EQ(slabs.held(), MiB(10));
  EXPECT_FALSE(slabs.contains(first));
  EXPECT_TRUE(slabs.contains(blocks[4]) && slabs.contains(blocks[5]));
  EXPECT_EQ(slabs.trim(), MiB(4));
  EXPECT_EQ(slabs.held(), MiB(6));
  EXPECT_EQ(slabs.trim(), Bytes(0)) << "what is used stays";
}

// A program that fills and empties the host in each period maps and locks no memory twice. The memory lingers
// while the program runs and is unmapped after the program stops.
TEST(Slabs, WhatWasInUseTogetherLingers) {
  using std::chrono::seconds;
  static std::chrono::steady_clock::time_point clock;
  clock = {};
  int locked = 0;
  Slabs slabs("host", {.slab = MiB(2),
                       .keep = MiB(4),
                       .linger = seconds(10),
                       .now = [] { return clock; },
                       .hooks = {.lock =
                                     [&](void*, size_t) {
                                       ++locked;
                                       return Status();
                                     },
                                 .unlock = [](void*, size_t) { return true; }}});
  const auto step = [&](int count) {
    std::vector<std::byte*> blocks;
    for (int i = 0; i < count; ++i) blocks.push_back(take(slabs, MiB(2)));
    clock += seconds(1);
    for (std::byte* block : blocks) slabs.free(block);
  };
  for (int i = 0; i < 100; ++i) step(16);
  EXPECT_EQ(locked, 16);
  EXPECT_EQ(slabs.held(), MiB(32));
  for (int i = 0; i < 9; ++i) step(4);
  EXPECT_EQ(slabs.held(), MiB(32)) << "it may come back";
  for (int i = 0; i < 12; ++i) step(4);
  EXPECT_EQ(slabs.held(), MiB(8)) << "as many as it uses now";
  EXPECT_EQ(locked, 16);
  clock += seconds(30);
  slabs.tidy();
  EXPECT_EQ(slabs.held(), MiB(2)) << "an idle one keeps what any may: half the bound, once it is beyond";
}

// Blocks of another size do not fit into lingering slabs: those are unmapped, and held memory stays within
// the memory in use.
TEST(Slabs, WhatLingersGivesWayToWhatIsInUse) {
  Slabs slabs("host", {.slab = MiB(2), .keep = MiB(4), .linger = std::chrono::hours(1), .blank = true});
  std::vector<std::byte*> small;
  for (int i = 0; i < 16; ++i) small.push_back(take(slabs, MiB(2)));
  for (std::byte* block : small) slabs.free(block);
  EXPECT_EQ(slabs.held(), MiB(32));
  std::vector<std::byte*> large;
  for (int i = 0; i < 10; ++i) {
    large.push_back(take(slabs, MiB(3)));
    EXPECT_LE(slabs.held(), MiB(32) + MiB(4)) << i;
  }
}

TEST(Slabs, AreLockedOnce) {
  std::set<void*> locked;
  int calls = 0;
  {
    Slabs slabs("host", {.slab = MiB(2),
                         .keep = MiB(64),
                         .hooks = {.lock =
                                       [&](void* data, size_t size) {
                                         ++calls;
                                         if (size == (3 << 20))
                                           return Status(Code::unavailable, "refused by the test");
                                         EXPECT_TRUE(locked.insert(data).second);
                                         return Status::okay();
                                       },
                                   .unlock = [&](void* data, size_t) { return locked.erase(data) == 1u; }}});
    for (int round = 0; round < 1000; ++round) {  // Periods of a training.
      std::vector<std::byte*> blocks;
      for (int i = 0; i < 20; ++i) blocks.push_back(take(slabs, KiB(256)));
      for (std::byte* block : blocks) slabs.free(block);
    }
    EXPECT_EQ(calls, 3) << "5 MiB in slabs of 2";
    std::byte* refused = take(slabs, MiB(3));
    std::memset(refused, 1, 3 << 20);
    slabs.free(refused);
    EXPECT_EQ(locked.size(), 3u);
    slabs.trim();
    EXPECT_TRUE(locked.empty());
    take(slabs, MiB(1));
  }
  EXPECT_TRUE(locked.empty());
}

TEST(Slabs, TheAddressesOfWhatCannotBeUnlockedAreUsedNoMore) {
  std::set<void*> refused;
  {
    Slabs slabs("host", {.slab = MiB(2),
                         .hooks = {.lock = [](void*, size_t) { return Status::okay(); },
                                   .unlock =
                                       [&](void* data, size_t) {
                                         refused.insert(data);
                                         return false;
                                       }}});
    slabs.free(take(slabs, MiB(1)));
    slabs.trim();
    EXPECT_EQ(slabs.held(), Bytes(0));
    EXPECT_EQ(refused.count(take(slabs, MiB(1))), 0u);
  }
  ASSERT_EQ(refused.size(), 2u);
  for (void* data : refused) {
    // A recorded address that is mapped again must be writable here.
    static_cast<volatile char*>(data)[0] = 1;
    ::munmap(data, 2 << 20);
  }
}

// With little address space left a block is mapped alone, and empty slabs are unmapped for it.
TEST(Slabs, WhereASlabIsRefusedLessIsRequested) {
  const auto with_little_left = [] {
    Slabs slabs("host", {.slab = MiB(64)});
    slabs.free(take(slabs, MiB(64)));
    std::ifstream statm("/proc/self/statm");
    rlim_t pages = 0;
    statm >> pages;
    const rlimit limit{pages * kPage + (16 << 20), RLIM_INFINITY};
    ::setrlimit(RLIMIT_AS, &limit);
    const bool instead_of_the_empty_one = slabs.allocate(MiB(65)).ok();
    const bool alone = slabs.allocate(MiB(9)).ok();
    std::_Exit(instead_of_the_empty_one && alone && !slabs.allocate(MiB(32)).ok() ? 0 : 1);
  };
  EXPECT_EXIT(with_little_left(), testing::ExitedWithCode(0), "");
}

TEST(Slabs, ComeInHugePagesWhereTheSystemGivesThem) {
  std::ifstream setting("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string text;
  std::getline(setting, text);
  if (text.find("[madvise]") == std::string::npos && text.find("[always]") == std::string::npos)
    GTEST_SKIP() << "transparent huge pages are off: " << text;
  Slabs slabs("host", {});
  const std::byte* data = take(slabs, MiB(64));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(kHugePage), 0u);
  std::ifstream maps("/proc/self/smaps");
  bool here = false;
  bool huge = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      const auto address = reinterpret_cast<uintptr_t>(data);
      here = begin <= address && address < end;
    } else if (here && line.starts_with("VmFlags:")) {
      huge = line.find(" hg") != std::string::npos;
    }
  }
  EXPECT_TRUE(huge);
}

TEST(Slabs, BlankOnesHoldNoData) {
  const void* gone = nullptr;
  {
    Slabs slabs("host", {.blank = true});
    const std::byte* data = take(slabs, GiB(64));
    EXPECT_EQ(data[0] | data[GiB(64).count() - 1], std::byte{0});
    EXPECT_TRUE(is_blank(data) && is_blank(data + GiB(64).count() - 1));
    gone = data;
  }
  EXPECT_FALSE(is_blank(gone));
}

TEST(Slabs, SayWhatTheyWereAsked) {
  Slabs slabs("host", {});
  take(slabs, MiB(1));
  const Result<void*> beyond = slabs.allocate(Bytes(int64_t{1} << 47));
  EXPECT_EQ(beyond.status().code(), Code::out_of_memory);
  EXPECT_EQ(beyond.status().message(), "host: asked 128.0 TiB, more than a process can map");
  const Result<void*> refused = slabs.allocate(Bytes(int64_t{1} << 46));
  if (!refused.ok()) {  // The system's overcommit setting decides.
    EXPECT_EQ(refused.status().code(), Code::out_of_memory);
    EXPECT_NE(refused.status().message().find("host: asked 64.0 TiB, 64.0 MiB held: the system refused "),
              std::string::npos)
        << refused.status().message();
  }
  EXPECT_EQ(slabs.live(), MiB(1) + Bytes(refused.ok() ? int64_t{1} << 46 : 0));
}

TEST(Slabs, MemoryIsFreedOnce) {
  Slabs slabs("host", {});
  std::byte* data = take(slabs, Bytes(100));
  slabs.free(data);
  EXPECT_DEATH(slabs.free(data), "memory is freed that is not live");
}

// A loop that allocates the same sizes again, freed in any order, reuses the memory it held: the held memory
// does not grow.
TEST(Slabs, AHundredThousandRoundTripsHoldNoMore) {
  Slabs slabs("host", {.slab = MiB(2), .keep = MiB(0), .blank = true});
  std::mt19937 random(7);
  std::vector<Bytes> sizes(500);
  Bytes need{0};
  for (Bytes& size : sizes) need += round_up(size = Bytes(static_cast<int64_t>(1 + random() % 300'000)));
  Bytes most{0};
  for (int round = 0; round < 200; ++round) {
    std::vector<std::byte*> out;
    for (const Bytes size : sizes) {
      if (out.size() > 50 && random() % 4 == 0) {  // Some allocations precede other releases.
        std::swap(out[random() % out.size()], out.back());
        slabs.free(out.back());
        out.pop_back();
      }
      out.push_back(take(slabs, size));
    }
    most = std::max(most, slabs.held());
    std::shuffle(out.begin(), out.end(), random);
    for (std::byte* block : out) slabs.free(block);
    ASSERT_EQ(slabs.held(), Bytes(0));
  }
  EXPECT_LE(most, need);
}

// Threads also find freed memory again.
TEST(Slabs, ThreadsNeverShareABlock) {
  Slabs slabs("host", {.slab = MiB(2), .keep = MiB(2)});
  test::expect_no_overlap(slabs, 2'000'000, [&](Bytes size) { return take(slabs, size); });
  slabs.trim();
  EXPECT_EQ(slabs.held(), Bytes(0));
}

}  // namespace
}  // namespace innkeeper
