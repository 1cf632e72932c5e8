// Threads that allocate and free concurrently, for tests of allocators.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/types.h"

namespace innkeeper::test {

// Checks that live blocks never overlap, for any order of allocations, frees and trims in several threads.
// `take` allocates from the allocator. A block has at most `largest` bytes. All blocks are freed.
template <class Allocator>
void expect_no_overlap(Allocator& allocator, size_t largest, const std::function<void*(Bytes)>& take) {
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    const auto tag = static_cast<unsigned char>(seed);
    std::vector<std::pair<unsigned char*, size_t>> mine;
    for (int step = 0; step < 2000; ++step) {
      if (mine.size() < 8 && random() % 2 == 0) {
        const size_t size = 1 + random() % (random() % 4 == 0 ? largest : 2000);
        auto* data = static_cast<unsigned char*>(take(Bytes(static_cast<int64_t>(size))));
        std::memset(data, tag, size);
        mine.emplace_back(data, size);
      } else if (!mine.empty()) {
        std::swap(mine[random() % mine.size()], mine.back());
        const auto [data, size] = mine.back();
        mine.pop_back();
        for (size_t i = 0; i < size; i += 61) ASSERT_EQ(data[i], tag);
        allocator.free(data);
      }
      if (random() % 200 == 0) allocator.trim();
    }
    for (const auto& [data, size] : mine) allocator.free(data);
  };
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 4; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(allocator.live(), Bytes(0));
}

}  // namespace innkeeper::test
