#include "device/arena.h"

#include <gtest/gtest.h>

#include <cstring>

#include "support/allocator_threads.h"

namespace innkeeper {
namespace {

void* take(Arena& arena, Bytes size) {
  Result<Arena::Piece> piece = arena.allocate(size);
  EXPECT_TRUE(piece.ok()) << piece.status().message();
  return piece.value().data;
}

TEST(Arena, ClassesWasteAtMostAnEighth) {
  for (int64_t size = 64; size < int64_t{1} << 40; size += 64 + size / 37 / 64 * 64) {
    const int64_t real = Arena::class_size(Bytes(size)).count();
    ASSERT_GE(real, size);
    ASSERT_LE(real - size, size / 8) << size;
    ASSERT_EQ(Arena::class_size(Bytes(real)).count(), real) << "a class holds its own size";
  }
}

TEST(Arena, AlignsAndAccountsRoundedSizes) {
  Arena arena({});
  int64_t expected = 0;
  for (int64_t size : {1, 63, 64, 65, 577, 4097, 65536, 65537, 1 << 20, (3 << 20) + 1}) {
    void* data = take(arena, Bytes(size));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
    std::memset(data, 1, static_cast<size_t>(round_up(Bytes(size)).count()));
    EXPECT_EQ(arena.size_of(data), round_up(Bytes(size)));
    expected += round_up(Bytes(size)).count();
  }
  EXPECT_EQ(arena.live(), Bytes(expected));
}

TEST(Arena, ReusesTheLastFreedFirst) {
  Arena arena({});
  for (Bytes size : {Bytes(128), MiB(1)}) {
    void* first = take(arena, size);
    void* second = take(arena, size);
    arena.free(first);
    arena.free(second);
    EXPECT_EQ(arena.size_of(first), Bytes(0));
    Result<Arena::Piece> again = arena.allocate(size);
    EXPECT_EQ(again.value().data, second);
    EXPECT_FALSE(again.value().fresh);
    EXPECT_EQ(take(arena, size), first);
  }
}

TEST(Arena, BlankMemoryReadsAsZerosAndIsNoneToWrite) {
  const void* gone = nullptr;
  {
    Arena arena({.blank = true});
    for (const Bytes size : {Bytes(64), MiB(1), GiB(64)}) {
      const auto* data = static_cast<const unsigned char*>(take(arena, size));
      const auto last = static_cast<size_t>(size.count()) - 1;
      EXPECT_EQ(data[0] | data[last / 2] | data[last], 0);
      EXPECT_TRUE(is_blank(data) && is_blank(data + last) && arena.contains(data + last));
      EXPECT_EQ(arena.size_of(data), size);
      gone = data;
    }
    EXPECT_DEATH(*static_cast<volatile unsigned char*>(take(arena, Bytes(64))) = 1, "");
  }
  EXPECT_FALSE(is_blank(gone));
  Arena ordinary({});
  EXPECT_FALSE(is_blank(take(ordinary, MiB(1))));
}

TEST(Arena, KnowsItsMappings) {
  Arena arena({});
  auto* data = static_cast<std::byte*>(take(arena, MiB(1)));
  const int local = 0;
  EXPECT_TRUE(arena.contains(data));
  EXPECT_TRUE(arena.contains(data + (1 << 20) - 1));
  EXPECT_FALSE(arena.contains(&local));
  arena.free(data);
  EXPECT_TRUE(arena.contains(data)) << "cached memory is still ours";
  EXPECT_EQ(arena.cached(), MiB(1));
  EXPECT_EQ(arena.trim(), MiB(1));
  EXPECT_FALSE(arena.contains(data));
}

TEST(Arena, BeyondItsLimitTheOldestShelvesGoFirst) {
  Arena arena({.cache_limit = MiB(8)});
  void* old = take(arena, MiB(3));
  void* recent = take(arena, MiB(4));
  void* last = take(arena, MiB(2));
  arena.free(old);
  arena.free(recent);
  EXPECT_EQ(arena.cached(), MiB(7));
  arena.free(last);  // 9 MiB are free, so the arena shrinks to at most 4.
  EXPECT_EQ(arena.cached(), MiB(2));
  EXPECT_FALSE(arena.contains(old));
  EXPECT_FALSE(arena.contains(recent));
  EXPECT_EQ(take(arena, MiB(2)), last);
}

TEST(Arena, KeepsAddressesMappedWhenAsked) {
  Arena arena({.keep_mapped = true});
  auto* data = static_cast<char*>(take(arena, MiB(2)));
  data[5] = 'x';
  arena.free(data);
  EXPECT_EQ(arena.trim(), MiB(2));
  EXPECT_EQ(arena.cached(), Bytes(0));
  EXPECT_TRUE(arena.contains(data));
  EXPECT_EQ(data[5], 0) << "the page went back to the system, the address is still good";
  Result<Arena::Piece> again = arena.allocate(MiB(2));
  EXPECT_EQ(again.value().data, data);
  EXPECT_TRUE(again.value().fresh);
}

TEST(Arena, SaysWhatItWasAsked) {
  Arena arena({.name = "sim:0"});
  const Result<Arena::Piece> beyond = arena.allocate(Bytes(int64_t{1} << 47));
  ASSERT_FALSE(beyond.ok());
  EXPECT_EQ(beyond.status().code(), Code::out_of_memory);
  EXPECT_EQ(beyond.status().message(), "sim:0: asked 128.0 TiB, more than a process can map");
  const Result<Arena::Piece> refused = arena.allocate(Bytes(int64_t{1} << 46));
  if (!refused.ok()) {  // The system's overcommit setting decides.
    EXPECT_EQ(refused.status().code(), Code::out_of_memory);
    EXPECT_NE(refused.status().message().find("70368744177664 bytes"), std::string::npos);
  }
  EXPECT_EQ(arena.live(), Bytes(refused.ok() ? int64_t{1} << 46 : 0));
}

TEST(Arena, ThreadsNeverShareABlock) {
  Arena arena({.cache_limit = MiB(1)});
  test::expect_no_overlap(arena, 200'000, [&](Bytes size) { return take(arena, size); });
}

TEST(Arena, MemoryIsFreedOnce) {
  Arena arena({});
  void* data = take(arena, Bytes(100));
  arena.free(data);
  EXPECT_DEATH(arena.free(data), "memory is freed that is not live");
}

}  // namespace
}  // namespace innkeeper
