#include "torch/memory/address_space.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/environment.h"

namespace innkeeper::torch_layer {
namespace {

#ifdef __SANITIZE_ADDRESS__
#define IK_SKIP_UNDER_ASAN() GTEST_SKIP() << "AddressSanitizer takes most addresses and catches traps itself"
#else
#define IK_SKIP_UNDER_ASAN() static_cast<void>(0)
#endif

constexpr size_t kKiB = 1024;

TEST(AddressSpace, SizeClassesAreLargeEnoughAndAtMostAnEighthLarger) {
  EXPECT_EQ(AddressSpace::class_size(0), 0U);
  EXPECT_EQ(AddressSpace::class_size(1), 512U);
  EXPECT_EQ(AddressSpace::class_size(512), 512U);
  EXPECT_EQ(AddressSpace::class_size(513), 1024U);
  EXPECT_EQ(AddressSpace::class_size(16 * 512), 16U * 512);
  EXPECT_EQ(AddressSpace::class_size(16 * 512 + 1), 18U * 512);
  for (size_t size = 1; size < (size_t{1} << 45); size += size / 7 + 1) {
    const size_t given = AddressSpace::class_size(size);
    ASSERT_GE(given, size);
    ASSERT_LE(given, size + std::max<size_t>(size / 8, 512)) << size;
    ASSERT_EQ(AddressSpace::class_size(given), given) << "a class contains its own size";
  }
}

TEST(AddressSpace, LiveRangesNeverOverlapAndAreFoundByEachOfTheirAddresses) {
  IK_SKIP_UNDER_ASAN();
  AddressSpace space;
  std::mt19937_64 random(test::from_environment("SEED", 1));
  std::map<uintptr_t, AddressSpace::Range*> live;
  size_t bytes = 0;
  for (int step = 0; step < 20000; ++step) {
    if (live.empty() || random() % 5 < 3) {
      const size_t size = 1 + (random() >> (24 + random() % 40));  // Sizes up to 2^40, of all magnitudes.
      AddressSpace::Range* range = space.take(size);
      ASSERT_EQ(range->owner.load(), nullptr);
      ASSERT_EQ(range->size, AddressSpace::class_size(size));
      ASSERT_EQ(range->begin % AddressSpace::kGranule, 0U);
      const auto after = live.lower_bound(range->begin);
      if (after != live.end()) {
        ASSERT_LE(range->begin + range->size, after->first);
      }
      if (after != live.begin()) {
        ASSERT_LE(std::prev(after)->first + std::prev(after)->second->size, range->begin);
      }
      range->owner = &live;
      live[range->begin] = range;
      bytes += range->size;
    } else {
      auto victim = std::next(live.begin(), static_cast<int64_t>(random() % live.size()));
      space.give_back(victim->second);
      bytes -= victim->second->size;
      live.erase(victim);
    }
    ASSERT_EQ(space.live(), bytes);
    if (live.empty()) continue;
    AddressSpace::Range* any = std::next(live.begin(), static_cast<int64_t>(random() % live.size()))->second;
    for (const size_t offset : {size_t{0}, random() % any->size, any->size - 1}) {
      ASSERT_EQ(space.find(reinterpret_cast<void*>(any->begin + offset)), any);
    }
  }
  for (const auto& [begin, range] : live) {
    space.give_back(range);
    ASSERT_EQ(range->owner.load(), nullptr);
  }
  EXPECT_EQ(space.live(), 0U);
}

TEST(AddressSpace, RecyclesInsteadOfReserving) {
  AddressSpace space;
  AddressSpace::Range* first = space.take(100 * kKiB);
  const size_t reserved = space.reserved();
  space.give_back(first);
  for (int i = 0; i < 1000; ++i) {
    AddressSpace::Range* again = space.take(100 * kKiB - 1);  // Same size class.
    ASSERT_EQ(again, first);
    space.give_back(again);
  }
  EXPECT_EQ(space.reserved(), reserved);
}

TEST(AddressSpace, NothingHasNoAddress) {
  AddressSpace space;
  EXPECT_EQ(space.take(0), nullptr);
  space.give_back(nullptr);
  EXPECT_EQ(space.live(), 0U);
}

TEST(AddressSpace, FindsNothingWhereNothingWasTaken) {
  AddressSpace space;
  int local = 0;
  EXPECT_EQ(space.find(&local), nullptr);
  EXPECT_EQ(space.find(nullptr), nullptr);
  const AddressSpace::Range* range = space.take(4096);
  EXPECT_EQ(space.find(&local), nullptr);
  EXPECT_EQ(space.find(nullptr), nullptr);
  EXPECT_EQ(space.find(reinterpret_cast<void*>(range->begin - 1)), nullptr);
  EXPECT_EQ(space.find(reinterpret_cast<void*>(range->begin + range->size)), nullptr);
}

TEST(AddressSpace, AStrayDereferenceTraps) {
  IK_SKIP_UNDER_ASAN();
  AddressSpace space;
  auto* data = static_cast<volatile char*>(space.take(4096)->address());
  EXPECT_EXIT((void)data[17], testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(data[17] = 1, testing::KilledBySignal(SIGSEGV), "");
}

TEST(AddressSpace, ThreadsGetRangesOfTheirOwn) {
  AddressSpace space;
  std::vector<std::vector<AddressSpace::Range*>> taken(4);
  std::vector<std::thread> threads;
  for (auto& own : taken) {
    threads.emplace_back([&space, &own] {
      for (int i = 0; i < 2000; ++i) {
        AddressSpace::Range* range = space.take(1024);
        if (i % 3 == 0) {
          space.give_back(range);
        } else {
          own.push_back(range);
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  std::map<uintptr_t, int> owners;
  for (const auto& own : taken) {
    for (const AddressSpace::Range* range : own) ++owners[range->begin];
  }
  for (const auto& [address, count] : owners) ASSERT_EQ(count, 1) << address;
  EXPECT_EQ(space.live(), owners.size() * 1024);
}

// In a process with little address space a failing allocation states its size, and allocations of different
// sizes can follow each other.
void use_up_addresses() {
  std::ifstream status("/proc/self/statm");
  size_t pages = 0;
  status >> pages;
  const rlimit limit = {pages * 4096 + (size_t{1} << 30), RLIM_INFINITY};
  if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(2);
  AddressSpace space;
  for (size_t size = size_t{300} << 20; size < (size_t{700} << 20); size += size_t{40} << 20) {
    space.give_back(space.take(size));  // Each allocation needs the addresses of the one before.
  }
  const AddressSpace::Range* kept = space.take(size_t{600} << 20);
  if (kept == nullptr) _exit(3);
  try {
    space.take(size_t{600} << 20);
  } catch (const c10::OutOfMemoryError& error) {
    std::fprintf(stderr, "%s\n", error.what_without_backtrace());
    _exit(0);
  }
  _exit(4);
}

TEST(AddressSpace, ALimitOnAddressesGivesOneClearLine) {
  IK_SKIP_UNDER_ASAN();
  EXPECT_EXIT(use_up_addresses(), testing::ExitedWithCode(0),
              "no addresses for a managed tensor of 629145600 bytes: .*in use by tensors, .*RLIMIT_AS");
}

}  // namespace
}  // namespace innkeeper::torch_layer
