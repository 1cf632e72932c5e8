// A simulated GPU: its memory, its queues, its clock.
#include "sim/accelerator.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "support/accelerator.h"

namespace innkeeper::sim {
namespace {

TEST(Accelerator, AnEarlyQueueIsThroughWithAWaitAtOnce) {
  Accelerator late(options(Visibility::late));
  Accelerator early(options(Visibility::early, 0, "sim:1"));
  unsigned char* data = take(late);
  fill(late, data, 7);
  ASSERT_FALSE(late.idle(kCompute));
  early.wait(kCompute, late.record(kCompute));
  EXPECT_TRUE(early.idle(kCompute));
  EXPECT_EQ(data[0], 7);
  late.free(data);
}

TEST(Accelerator, RandomIsTheSameForASeed) {
  auto outcomes = [](uint64_t seed) {
    Accelerator gpu(options(Visibility::random, seed));
    std::string seen;
    unsigned char* data = take(gpu);
    for (int i = 0; i < 64; ++i) {
      fill(gpu, data, 7);
      seen += data[0] == 7 ? 'v' : 'h';
      gpu.synchronize();
    }
    return seen;
  };
  EXPECT_EQ(outcomes(5), outcomes(5));
  EXPECT_NE(outcomes(5), outcomes(6));
}

TEST(Accelerator, FreshAndFreedMemoryIsPoison) {
  Accelerator gpu(options(Visibility::late));
  unsigned char* data = take(gpu);
  for (size_t i = 0; i < kSize; ++i) ASSERT_EQ(data[i], kPoison);
  fill(gpu, data, 7);
  gpu.synchronize();
  gpu.free(data);
  for (size_t i = 0; i < kSize; ++i) ASSERT_EQ(data[i], kPoison);
  float number;
  std::memcpy(&number, data, sizeof number);
  EXPECT_NE(number, number);
}

TEST(Accelerator, WithoutPoisonMemoryIsLeftAsItIs) {
  Options plain = options(Visibility::early);
  plain.poison = false;
  Accelerator gpu(plain);
  unsigned char* data = take(gpu);
  EXPECT_EQ(data[0], 0);
  fill(gpu, data, 7);
  gpu.free(data);
  EXPECT_EQ(data[0], 7);
}

TEST(Accelerator, WithoutDataItIsAsLargeAsItSaysAndTheHostSeesZeros) {
  for (Visibility visibility : {Visibility::early, Visibility::late, Visibility::random}) {
    Options wanted = options(visibility);
    wanted.data = false;
    wanted.capacity = GiB(100);
    Accelerator gpu(wanted);
    unsigned char* first = take(gpu, size_t{90} << 30);
    EXPECT_EQ(gpu.live(), GiB(90));
    EXPECT_EQ(gpu.allocate(GiB(11)).status().code(), Code::out_of_memory);
    std::vector<unsigned char> host(kSize, 7);
    gpu.copy(kIn, first, host.data(), kSize, Direction::in);
    fill(gpu, first, 7, size_t{90} << 30);
    unsigned char* second = take(gpu, size_t{10} << 30);
    gpu.copy(kCompute, second, first, size_t{10} << 30, Direction::within);
    EXPECT_TRUE(gpu.copy(kOut, host.data(), first, kSize, Direction::out)->synchronize().ok());
    EXPECT_EQ(host, std::vector<unsigned char>(kSize, 0));
    EXPECT_EQ(gpu.copied(Direction::within), GiB(10));
    gpu.free(first);
    gpu.free(second);
  }
}

TEST(Accelerator, WhatTheSystemRefusesIsNotInUse) {
  Options wanted = options(Visibility::early);
  wanted.data = false;
  wanted.capacity = Bytes(int64_t{1} << 48);  // More than a process can map.
  Accelerator gpu(wanted);
  EXPECT_EQ(gpu.allocate(Bytes(int64_t{1} << 47)).status().code(), Code::out_of_memory);
  EXPECT_EQ(gpu.live(), Bytes(0));
  Result<void*> rest = gpu.allocate(Bytes((int64_t{1} << 48) + 1));
  EXPECT_NE(rest.status().message().find("in use 0 B"), std::string::npos) << rest.status().message();
}

TEST(Accelerator, FreeingPublishesNothingElse) {
  Accelerator gpu(options(Visibility::late));
  unsigned char* kept = take(gpu);
  unsigned char* scratch = take(gpu);
  gpu.begin_kernel(kCompute);
  std::memset(kept, 7, kSize);
  const WrittenRange written{kept, kSize};
  gpu.end_kernel(kCompute, {&written, 1}, {});
  gpu.free(scratch);
  EXPECT_EQ(kept[0], kPoison);
  EXPECT_EQ(look(gpu, kept), 7);
}

// A user of memory that a kernel wrote just before must wait for the compute queue, or the kernel's write
// comes later.
TEST(Accelerator, FreedMemoryIsStillItsKernels) {
  for (const bool wait : {true, false}) {
    Accelerator gpu(options(Visibility::late));
    unsigned char* data = take(gpu);
    fill(gpu, data, 7);
    gpu.free(data);
    EXPECT_EQ(data[0], kPoison);
    unsigned char* again = take(gpu);
    ASSERT_EQ(again, data);
    const std::vector<unsigned char> source(kSize, 9);
    if (wait) gpu.wait(kIn, gpu.record(kCompute));
    const Event copied = gpu.copy(kIn, again, source.data(), kSize, Direction::in);
    ASSERT_TRUE(copied->synchronize().ok());
    EXPECT_EQ(look(gpu, again), wait ? 9 : int{kPoison});
  }
}

// As when two threads' kernels overlap: one computes in memory that was the other's scratch memory.
TEST(Accelerator, NothingIsPendingWhereAComputingKernelIsGivenMemory) {
  Accelerator gpu(options(Visibility::late));
  gpu.begin_kernel(kCompute);
  unsigned char* scratch = take(gpu);  // the other's
  fill(gpu, scratch, 7);
  gpu.free(scratch);
  unsigned char* result = take(gpu);
  ASSERT_EQ(result, scratch);
  std::memset(result, 9, kSize);
  gpu.begin_kernel(kCompute);  // The other thread's next kernel.
  EXPECT_EQ(result[0], 9);
  gpu.end_kernel(kCompute, {}, {});
  const WrittenRange written{result, kSize};
  gpu.end_kernel(kCompute, {&written, 1}, {});
  EXPECT_EQ(look(gpu, result), 9);
}

TEST(Accelerator, OverlappingResultsAreHiddenOnce) {
  Accelerator gpu(options(Visibility::late));
  unsigned char* data = take(gpu);
  gpu.begin_kernel(kCompute);
  std::memset(data, 7, kSize);
  const WrittenRange written[] = {
      {data + 100, 200}, {data, kSize}, {data, kSize}, {data + 50, 0}, {data, 64}};
  gpu.end_kernel(kCompute, written, {});
  EXPECT_EQ(data[0], kPoison);
  EXPECT_EQ(look(gpu, data), 7);
  // Adjacent ranges, out of order.
  gpu.begin_kernel(kCompute);
  std::memset(data, 9, kSize);
  const WrittenRange halves[] = {{data + kSize / 2, kSize / 2}, {data, kSize / 2}};
  gpu.end_kernel(kCompute, halves, {});
  EXPECT_EQ(look(gpu, data), 9);
}

// The destination's old bytes may be right by chance, or left from the last copy.
TEST(Accelerator, ACopysDestinationIsPoisonUntilItIsMade) {
  Accelerator gpu(options(Visibility::late));
  unsigned char* data = take(gpu);
  fill(gpu, data, 7);
  gpu.synchronize();
  std::vector<unsigned char> host(kSize, 7);
  const Event copied = gpu.copy(kOut, host.data(), data, kSize, Direction::out);
  EXPECT_EQ(host[0], kPoison);
  EXPECT_EQ(host[kSize - 1], kPoison);
  EXPECT_TRUE(copied->synchronize().ok());
  EXPECT_EQ(host, std::vector<unsigned char>(kSize, 7));
  gpu.free(data);
}

TEST(Accelerator, ACopyOntoItselfMovesTheBytes) {
  for (const Visibility visibility : {Visibility::late, Visibility::early}) {
    for (const bool up : {true, false}) {
      Accelerator gpu(options(visibility));
      unsigned char* data = take(gpu);
      gpu.synchronize();
      for (size_t i = 0; i < kSize; ++i) data[i] = static_cast<unsigned char>(i % 100);
      unsigned char* from = up ? data : data + 64;
      unsigned char* to = up ? data + 64 : data;
      EXPECT_TRUE(gpu.copy(kCompute, to, from, kSize - 64, Direction::within)->synchronize().ok());
      const size_t first = up ? 0 : 64;
      for (size_t i = 0; i < kSize - 64; ++i) ASSERT_EQ(to[i], (first + i) % 100) << i;
      gpu.free(data);
    }
  }
}

TEST(Accelerator, PollingEnds) {
  Accelerator gpu(options(Visibility::late));
  unsigned char* data = take(gpu);
  fill(gpu, data, 7);
  const Event event = gpu.record(kCompute);
  EXPECT_FALSE(event->done());
  EXPECT_EQ(data[0], kPoison);
  int polls = 0;
  while (!event->done()) ASSERT_LT(++polls, 3);
  EXPECT_EQ(data[0], 7);
  EXPECT_TRUE(gpu.record(kCompute)->done()) << "nothing is pending";
}

TEST(Accelerator, CapacityIsHardAndSaidInNumbers) {
  Accelerator gpu(options(Visibility::late));
  unsigned char* most = take(gpu, (1 << 20) - 128);
  unsigned char* rest = take(gpu, 65);
  EXPECT_EQ(gpu.live(), MiB(1));
  EXPECT_EQ(gpu.size_of(rest), Bytes(128));
  const Result<void*> none = gpu.allocate(Bytes(1));
  EXPECT_EQ(none.status().code(), Code::out_of_memory);
  EXPECT_EQ(none.status().message(),
            "sim:0 is full: asked 1 B (1 bytes), in use 1.0 MiB of 1.0 MiB, free 0 B; a larger sim node in "
            "INNKEEPER_NODES gives it more");
  gpu.free(rest);
  const Result<void*> much = gpu.allocate(MiB(4));
  EXPECT_EQ(
      much.status().message(),
      "sim:0 is full: asked 4.0 MiB (4194304 bytes), in use 1023.9 KiB of 1.0 MiB, free 128 B; a larger sim "
      "node in INNKEEPER_NODES gives it more");
  EXPECT_FALSE(gpu.allocate(Bytes(INT64_MAX)).ok()) << "no overflow";
  EXPECT_EQ(gpu.allocate(Bytes(0)).status().code(), Code::invalid_argument);
  gpu.free(most);
  EXPECT_EQ(gpu.live(), Bytes(0));
  EXPECT_TRUE(gpu.contains(most));
}

TEST(Accelerator, TrimmedMemoryStaysMappedAndComesBackAsPoison) {
  Accelerator gpu(options(Visibility::late));
  unsigned char* data = take(gpu, 512 << 10);
  gpu.free(data);
  EXPECT_EQ(gpu.trim(), KiB(512));
  data[3] = 1;  // A write as a late copy would make it.
  unsigned char* again = take(gpu, 512 << 10);
  EXPECT_EQ(again, data);
  EXPECT_EQ(again[3], kPoison);
}

TEST(Accelerator, LongChainsOfWaitsBetweenQueuesEnd) {
  Accelerator gpu(options(Visibility::late));
  Accelerator peer(options(Visibility::late, 0, "sim:1"));
  Event last = gpu.record(kIn);
  unsigned char* data = take(gpu);
  unsigned char host[64] = {};
  for (int i = 0; i < 20000; ++i) {
    Accelerator& next = i % 2 == 0 ? peer : gpu;
    next.wait(kOut, last);
    last = next.copy(kOut, host, data, 64, Direction::out);
  }
  EXPECT_TRUE(last->synchronize().ok());
  EXPECT_TRUE(gpu.idle(kOut));
  EXPECT_TRUE(peer.idle(kOut));
}

Options simple_clock(Visibility visibility) {
  Options result = options(visibility);
  result.gpu = {.name = "test",
                .memory = MiB(1),
                .bandwidth = 100,
                .launch_seconds = 0.5,
                .reached_flops = 1,
                .reached_bandwidth = 1};
  result.gpu.rates.fill(1000);
  result.host_link = {"test", 64, 1};
  result.peer_link = {"test", 640, 0.25};
  return result;
}

TEST(VirtualTime, IsExactAndTheSameInEveryMode) {
  for (const auto& [visibility, has_data] :
       {std::pair(Visibility::early, true), std::pair(Visibility::late, true),
        std::pair(Visibility::random, true), std::pair(Visibility::late, false)}) {
    Options clock = simple_clock(visibility);
    clock.data = has_data;
    Accelerator gpu(clock);
    unsigned char host[640] = {};
    unsigned char* data = take(gpu, 640);
    EXPECT_EQ(gpu.time(), 0);
    // The copy in ends at 1 + 640/64 = 11. A concurrent kernel ends at 0.5 + max(2000/1000, 100/100) = 2.5.
    const Event in = gpu.copy(kIn, data, host, 640, Direction::in);
    gpu.begin_kernel(kCompute);
    gpu.end_kernel(kCompute, {}, {.flops = 2000, .bytes = 100});
    EXPECT_DOUBLE_EQ(time_of(in), 11);
    EXPECT_DOUBLE_EQ(gpu.time(kCompute), 2.5);
    // A kernel after the copy ends at 11 + 0.5 + 300/100.
    gpu.wait(kCompute, in);
    fill(gpu, data, 7, 640);
    gpu.begin_kernel(kCompute);
    const WrittenRange written{data, 640};
    gpu.end_kernel(kCompute, {&written, 1}, {.flops = 0, .bytes = 300});
    EXPECT_DOUBLE_EQ(gpu.time(kCompute), 11 + 0.5 + 3.5);
    // The copy out follows the kernel: the link is full duplex, so the concurrent copy in costs nothing.
    gpu.wait(kOut, gpu.record(kCompute));
    const Event out = gpu.copy(kOut, host, data, 64, Direction::out);
    EXPECT_DOUBLE_EQ(time_of(out), 15 + 2);
    gpu.copy(kIn, data, data + 64, 64, Direction::peer);
    EXPECT_DOUBLE_EQ(gpu.time(kIn), 11 + 0.25 + 0.1);
    EXPECT_DOUBLE_EQ(gpu.time(), 17);
    // An event that the host has waited for has passed for all later work, on any queue.
    EXPECT_TRUE(out->synchronize().ok());
    EXPECT_DOUBLE_EQ(time_of(gpu.copy(kIn, data, host, 64, Direction::in)), 17 + 2);
    EXPECT_EQ(gpu.copied(Direction::in), Bytes(704));
    EXPECT_EQ(gpu.copied(Direction::out), Bytes(64));
    EXPECT_EQ(gpu.copied(Direction::peer), Bytes(64));
    EXPECT_EQ(time_of(nullptr), 0);
  }
}

// Threads launch on the same queues, and both accelerators wait for each other all the time. The host
// launches one kernel after the other, at most as many as its queue holds.
TEST(VirtualTime, AKernelWaitsForTheHostThatLaunchesIt) {
  Options slow = options(Visibility::early);
  slow.host_seconds = 1e-3;
  Accelerator gpu(slow);
  const double kernel = slow.gpu.launch_seconds;
  const auto launch = [&] {
    gpu.begin_kernel(kCompute);
    gpu.end_kernel(kCompute, {}, {});
  };
  for (int i = 0; i < 5; ++i) launch();
  EXPECT_DOUBLE_EQ(gpu.host_time(), 5e-3);
  EXPECT_DOUBLE_EQ(gpu.time(kCompute), 5e-3 + kernel);

  Options fast = options(Visibility::early);
  fast.host_seconds = kernel / 2;
  Accelerator busy(fast);
  constexpr int kLaunches = 5000;
  for (int i = 0; i < kLaunches; ++i) {
    busy.begin_kernel(kCompute);
    busy.end_kernel(kCompute, {}, {});
  }
  EXPECT_NEAR(busy.time(kCompute), kLaunches * kernel, kernel);
  EXPECT_NEAR(busy.host_time(), (kLaunches - 1024) * kernel, 2 * kernel);
  EXPECT_EQ(Accelerator(options(Visibility::early)).host_time(), 0);
}

TEST(Accelerator, ThreadsOnSharedQueuesSeeTheirOwnWork) {
  for (Visibility visibility : {Visibility::late, Visibility::random, Visibility::early}) {
    Accelerator gpus[] = {Accelerator(options(visibility, 1)), Accelerator(options(visibility, 2, "sim:1"))};
    auto work = [&gpus](int tag) {
      std::vector<unsigned char> host(kSize);
      for (int step = 0; step < 200; ++step) {
        Accelerator& gpu = gpus[(tag + step) % 2];
        Accelerator& peer = gpus[(tag + step + 1) % 2];
        unsigned char* data = take(gpu);
        unsigned char* other = take(peer);
        fill(gpu, data, tag);
        peer.wait(kIn, gpu.record(kCompute));
        const Event across = peer.copy(kIn, other, data, kSize, Direction::peer);
        gpu.wait(kCompute, across);
        gpu.free(data);
        peer.wait(kCompute, across);
        ASSERT_EQ(look(peer, other), tag);
        peer.wait(kOut, peer.record(kCompute));
        const Event out = peer.copy(kOut, host.data(), other, kSize, Direction::out);
        peer.wait(kCompute, out);
        peer.free(other);
        while (!out->done()) std::this_thread::yield();
        ASSERT_EQ(host[100], tag);
      }
    };
    std::vector<std::thread> threads;
    for (int tag = 1; tag <= 6; ++tag) threads.emplace_back(work, tag);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(gpus[0].live() + gpus[1].live(), Bytes(0));
  }
}

// A GPU that keeps more free memory than it has gives pages back: not those that a copy still reads.
TEST(Accelerator, PagesStayWhileACopyReadsThem) {
  constexpr size_t kLarge = 256 << 10;
  Accelerator gpu(options(Visibility::late));  // 1 MiB
  std::vector<unsigned char> host(kLarge);
  unsigned char* data = take(gpu, kLarge);
  fill(gpu, data, 7, kLarge);
  gpu.synchronize();
  const Event copied = gpu.copy(kOut, host.data(), data, kLarge, Accelerator::Direction::out);
  gpu.free_after(data, std::span(&copied, 1));
  // Blocks of other size classes, one after the other.
  for (size_t more = 1; more < 9; ++more) gpu.free(take(gpu, kLarge + more * (64 << 10)));
  EXPECT_TRUE(copied->synchronize().ok());
  EXPECT_EQ(host, std::vector<unsigned char>(kLarge, 7));
}

}  // namespace
}  // namespace innkeeper::sim
