// A library that fails at random and answers nonsense: text without an end, huge counts, unknown errors. A
// snapshot keeps the promises of snapshot.h for any answer.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "support/environment.h"
#include "support/fake_gpus.h"
#include "support/sane_snapshot.h"
#include "telemetry/snapshot.h"

namespace innkeeper::telemetry {
namespace {

const char* const kMachine =
    "topology 0 1 10\ntopology 0 2 50\n"
    "gpu GPU-aaaaaaaa\n  bus 00000000:01:00.0\n  name NVIDIA H200\n  memory 140G 1G 1G\n  utilization 1 1\n"
    "  power 100 700\n  temperature 40\n  clocks 1000 2000\n  process 5 1G\n  process 6 1G graphics\n  "
    "nvlink 1 4\n"
    "gpu GPU-bbbbbbbb\n  bus 00000000:02:00.0\n  memory 140G 1G 1G\n  mig 7\n  nvlink 0 4\n"
    "instance MIG-11111111 1 0\n  memory 20G 0 0\n  process 7 1G\n"
    "instance MIG-22222222 2 0\n  memory 20G 0 0\n"
    "gpu GPU-cccccccc\n  bus 00000000:03:00.0\n  nvlink switch 18\n";

class Garbage : public testing::TestWithParam<int> {};

TEST_P(Garbage, NothingOfItGetsOut) {
  const uint64_t seed = test::from_environment("INNKEEPER_SEED", 1);
  for (const auto kind : {test::FakeGpus::quiet, test::FakeGpus::old}) {
    const test::FakeGpus gpus(
        "garbage " + std::to_string(seed) + " " + std::to_string(GetParam()) + "\n" + kMachine, kind);
    size_t seen = 0;
    const uint64_t rounds = test::from_environment("INNKEEPER_STEPS", 150);
    for (uint64_t round = 0; round < rounds; ++round) {
      const Snapshot now = snapshot(Wanted::all);
      ASSERT_EQ(test::wrong_in(now), "");
      seen += now.gpus.size();
    }
    // The sane answers between them come through.
    if (GetParam() <= 20) {
      EXPECT_GT(seen, 10u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Percent, Garbage, testing::Values(2, 20, 60, 100));

TEST(GarbageThreads, AreAsSafe) {
  const test::FakeGpus gpus(std::string("garbage 7 10\n") + kMachine);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int k = 0; k < 30; ++k) EXPECT_EQ(test::wrong_in(snapshot(Wanted::all)), "");
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace innkeeper::telemetry
