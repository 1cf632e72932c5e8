// When the library starts, ends, fails and loses GPUs; threads and fork().
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "support/child.h"
#include "support/environment.h"
#include "support/telemetry_checks.h"

namespace innkeeper::telemetry {
namespace {

using test::holds_in_child;
using namespace std::chrono_literals;

const char* const kTwoNvidiaGpus =
    "gpu GPU-aaaaaaaa\n  bus 00000000:01:00.0\n  memory 8G 0 1G\n"
    "gpu GPU-bbbbbbbb\n  bus 00000000:02:00.0\n  memory 8G 0 2G\n";

TEST(TelemetryLife, StartsOnceAndEndsOnce) {
  const FakeGpus gpus(kTwoNvidiaGpus);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(snapshot(Wanted::memory).gpus.size(), 2u);
  EXPECT_EQ(gpus.calls("nvmlInit_v2"), 1);
  EXPECT_EQ(gpus.calls("nvmlShutdown"), 0);
  shut_down();
  shut_down();
  EXPECT_EQ(gpus.calls("nvmlShutdown"), 1);
  EXPECT_EQ(snapshot(Wanted::memory).gpus.size(), 2u);
  EXPECT_EQ(gpus.calls("nvmlInit_v2"), 2);
}

TEST(TelemetryLife, SaysWhyThereIsNoDriver) {
  const StartFailure failures[] = {
      {"error nvmlInit_v2 9\n", Trouble::not_loaded, "sudo modprobe nvidia"},
      {"error nvmlInit_v2 18\n", Trouble::version_mismatch,
       "of different versions, as after an upgrade: reboot"},
      {"error nvmlInit_v2 4\n", Trouble::no_permission, "/dev/nvidia*"},
      {"error nvmlInit_v2 999\n", Trouble::other, "nvmlInit_v2: Unknown Error (999)"},
      {"error nvmlDeviceGetCount_v2 999\n", Trouble::other, "nvmlDeviceGetCount_v2: Unknown Error (999)"},
  };
  expect_said_and_cured<FakeGpus>(failures, kTwoNvidiaGpus);
}

TEST(TelemetryLife, SaysThatThereIsNoLibrary) {
  const FakeGpus gpus(kTwoNvidiaGpus);
  test::Environment environment;
  environment.set("INNKEEPER_NVML", "/nonexistent/libnvidia-ml.so.1");
  const Snapshot none = snapshot(Wanted::all);
  EXPECT_EQ(none.trouble, Trouble::no_library);
  EXPECT_EQ(none.driver.outcome(), Outcome::no_driver);
  EXPECT_NE(none.driver.text().find("docker run --gpus all"), std::string::npos);
  environment.set("INNKEEPER_NVML", "libm.so.6");
  EXPECT_EQ(snapshot(Wanted::all).trouble, Trouble::bad_library);
}

TEST(TelemetryLife, OneLostGpuHidesNoOther) {
  for (const char* how :
       {"  lost\n", "  error nvmlDeviceGetHandleByIndex_v2 15\n", "  error nvmlDeviceGetHandleByIndex_v2 1\n",
        "  error nvmlDeviceGetUUID 15\n", "  error nvmlDeviceGetMemoryInfo_v2 15\n",
        "  error nvmlDeviceGetPowerUsage 28\n"}) {
    const FakeGpus gpus(std::string("gpu GPU-aaaaaaaa\n  bus 00000000:01:00.0\n") + how +
                        "gpu GPU-bbbbbbbb\n  bus 00000000:02:00.0\n  memory 8G 0 2G\n");
    const Snapshot now = snapshot(Wanted::all);
    ASSERT_EQ(now.gpus.size(), 1u) << how;
    EXPECT_EQ(now.gpus[0].uuid, "GPU-bbbbbbbb");
    EXPECT_EQ(now.gpus[0].memory->used, GiB(2));
    ASSERT_EQ(now.lost.size(), 1u) << how;
    EXPECT_EQ(now.lost[0].driver_index, 0);
    EXPECT_NE(now.lost[0].why.find("nvmlDevice"), std::string::npos) << now.lost[0].why;
    EXPECT_FALSE(now.lost[0].forbidden);
  }
}

TEST(TelemetryLife, AGpuWithoutIdentityIsNoGpu) {
  const FakeGpus gpus(
      "gpu GPU-aaaaaaaa\n"
      "gpu GPU-aaaaaaaa\n"   // twice the same
      "gpu nonsense,UUID\n"  // would end a list in CUDA_VISIBLE_DEVICES
      "gpu GPU-cccccccc\n  error nvmlDeviceGetUUID 3\n"
      "gpu GPU-dddddddd\n  error nvmlDeviceGetHandleByIndex_v2 4\n");
  const Snapshot now = snapshot(Wanted::all);
  EXPECT_EQ(now.gpus.size(), 1u);
  ASSERT_EQ(now.lost.size(), 4u);
  EXPECT_EQ(now.lost[0].why, "another GPU has the same UUID");
  EXPECT_NE(now.lost[1].why.find("no UUID: \"nonsense,UUID\""), std::string::npos);
  EXPECT_EQ(now.lost[2].why, "it has no UUID");
  EXPECT_FALSE(now.lost[2].forbidden);
  EXPECT_TRUE(now.lost[3].forbidden);
}

TEST(TelemetryLife, TakesHandlesAgain) {
  FakeGpus gpus(kTwoNvidiaGpus);
  EXPECT_EQ(snapshot(Wanted::memory).gpus[0].memory->used, GiB(1));
  gpus.change("gpu GPU-cccccccc\n  memory 8G 0 5G\n");  // All earlier handles are stale.
  const Snapshot now = snapshot(Wanted::memory);
  ASSERT_EQ(now.gpus.size(), 1u);
  EXPECT_EQ(now.gpus[0].memory->used, GiB(5));
  EXPECT_TRUE(now.lost.empty());
}

TEST(TelemetryLife, RestartsNowAndThenWhileAGpuIsLost) {
  FakeGpus gpus("gpu GPU-aaaaaaaa\n  lost\n");
  const auto begin = std::chrono::steady_clock::now();
  int snapshots = 0;
  while (gpus.calls("nvmlInit_v2") < 3 && std::chrono::steady_clock::now() - begin < 45s) {
    EXPECT_TRUE(snapshot(Wanted::memory).gpus.empty());
    ++snapshots;
    std::this_thread::sleep_for(10ms);
  }
  // The starts: at the beginning, half a second later, and again.
  EXPECT_EQ(gpus.calls("nvmlInit_v2"), 3);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 1s);
  EXPECT_EQ(gpus.calls("nvmlShutdown"), gpus.calls("nvmlInit_v2") - 1);
  gpus.change("gpu GPU-aaaaaaaa\n");
  EXPECT_EQ(snapshot(Wanted::memory).gpus.size(), 1u);
}

TEST(TelemetryLife, AForbiddenGpuIsNoReasonToRestart) {
  const FakeGpus gpus("gpu GPU-aaaaaaaa\n  error nvmlDeviceGetHandleByIndex_v2 4\n");
  EXPECT_EQ(snapshot(Wanted::memory).lost.size(), 1u);
  std::this_thread::sleep_for(550ms);
  EXPECT_EQ(snapshot(Wanted::memory).lost.size(), 1u);
  EXPECT_EQ(gpus.calls("nvmlInit_v2"), 1);
}

TEST(TelemetryLife, SurvivesThatAnotherUserShutsTheLibraryDown) {
  const FakeGpus gpus(kTwoNvidiaGpus);
  EXPECT_EQ(snapshot(Wanted::memory).gpus.size(), 2u);
  shut_down_from_outside(test::fake_nvml_path(), "nvmlShutdown");
  const Snapshot now = snapshot(Wanted::memory);
  EXPECT_EQ(now.gpus.size(), 2u);
  EXPECT_EQ(now.trouble, Trouble::none);
}

TEST(TelemetryLife, AChildStartsItsOwn) {
  const FakeGpus gpus(kTwoNvidiaGpus);
  EXPECT_EQ(snapshot(Wanted::memory).gpus.size(), 2u);
  EXPECT_TRUE(holds_in_child([&] {
    const bool sees = snapshot(Wanted::memory).gpus.size() == 2 && gpus.calls("nvmlInit_v2") == 1;
    const bool child_sees = holds_in_child([] { return snapshot(Wanted::memory).gpus.size() == 2; });
    return sees && child_sees && gpus.calls("nvmlShutdown") == 0;
  }));
  // The parent's library is unchanged.
  EXPECT_EQ(snapshot(Wanted::memory).gpus.size(), 2u);
  EXPECT_EQ(gpus.calls("nvmlInit_v2"), 1);
}

TEST(TelemetryLife, AChildLeavesItsParentsAlone) {
  const FakeGpus gpus(kTwoNvidiaGpus);
  EXPECT_EQ(snapshot(Wanted::memory).gpus.size(), 2u);
  EXPECT_TRUE(holds_in_child([&] {
    shut_down();
    return gpus.calls("nvmlShutdown") == 0;
  }));
  EXPECT_EQ(snapshot(Wanted::memory).gpus.size(), 2u);
  EXPECT_EQ(gpus.calls("nvmlInit_v2"), 1);
}

TEST(TelemetryLife, NoLockIsHeldAcrossACall) {
  FakeGpus gpus(kTwoNvidiaGpus);
  expect_no_lock_across(gpus, kTwoNvidiaGpus, "nvmlDeviceGetCount_v2");
}

TEST(TelemetryLife, ThreadsShareOneStart) {
  const FakeGpus gpus(std::string("slow nvmlInit_v2 20\n") + kTwoNvidiaGpus);
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 20; ++k) {
        if (snapshot(Wanted::memory).gpus.size() == 2) ++right;
        if (k % 5 == 4) shut_down();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 8 * 20);
  shut_down();
  EXPECT_EQ(gpus.calls("nvmlInit_v2"), gpus.calls("nvmlShutdown"));
}

TEST(TelemetryLife, ASlowQuestionIsNotAskedUnasked) {
  const FakeGpus gpus(kTwoNvidiaGpus);
  snapshot(Wanted::memory | Wanted::utilization | Wanted::power);
  EXPECT_EQ(gpus.calls("nvmlDeviceGetComputeRunningProcesses_v3"), 0);
  snapshot(Wanted::processes);
  EXPECT_EQ(gpus.calls("nvmlDeviceGetComputeRunningProcesses_v3"), 2) << "both GPUs";
}

}  // namespace
}  // namespace innkeeper::telemetry
