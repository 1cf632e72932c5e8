// Many threads on one device.
#pragma once

#include <latch>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "support/contract/size.h"

namespace innkeeper::test::contract {

inline void threads_share_it(Trial& t) {
  constexpr unsigned kThreads = 4;
  std::latch all(kThreads);
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    all.arrive_and_wait();
    for (int step = 0; step < t.steps(); ++step) {
      const size_t size = 1 + random() % 20'000;
      const Contents& bytes = t.bytes(size, seed * 1000 + static_cast<uint64_t>(step));
      Contents& back = t.buffer(size);
      const bool for_a_copy = random() % 2 == 0;
      Memory memory = t.take(Bytes(static_cast<int64_t>(size)), for_a_copy ? Queue::copy_in : Queue::compute);
      if (!for_a_copy) t.order(Queue::copy_in, t.queued(t.device().record(Queue::compute)));
      const Event in = t.put(memory, bytes);
      t.order(Queue::copy_out, in);
      const Event out = t.get(back, memory);
      switch (random() % 3) {
        case 0: t.give_back(std::move(memory), {in, out}); break;
        case 1: t.drop(std::move(memory), {in, out}); break;
        default: t.finish(t.queued(t.device().record(Queue::copy_out)));
      }
      if (random() % 8 == 0) (void)t.device().trim();
      t.finish(out);
      if (!t.expect(back == bytes, "each thread has its own bytes")) return;
      if (memory) t.drop(std::move(memory), {in, out});
    }
  };
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= kThreads; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace innkeeper::test::contract
