// When the library starts, ends, fails and loses cards; threads and fork().
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "support/fake_gpus.h"
#include "support/soon.h"
#include "telemetry/snapshot.h"

namespace innkeeper::telemetry {
namespace {

using test::FakeGpus;
using namespace std::chrono_literals;

const char* const kTwoCards =
    "card GPU-aaaaaaaa\n  bus 00000000:01:00.0\n  memory 8G 0 1G\n"
    "card GPU-bbbbbbbb\n  bus 00000000:02:00.0\n  memory 8G 0 2G\n";

TEST(TelemetryLife, StartsOnceAndEndsOnce) {
  const FakeGpus gpus(kTwoCards);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(snapshot(Wanted::memory).cards.size(), 2u);
  EXPECT_EQ(gpus.calls("nvmlInit_v2"), 1);
  EXPECT_EQ(gpus.calls("nvmlShutdown"), 0);
  shut_down();
  shut_down();
  EXPECT_EQ(gpus.calls("nvmlShutdown"), 1);
  EXPECT_EQ(snapshot(Wanted::memory).cards.size(), 2u);
  EXPECT_EQ(gpus.calls("nvmlInit_v2"), 2);
}

struct Failure {
  const char* script;
  Trouble trouble;
  const char* text;  // a part of it
};

TEST(TelemetryLife, SaysWhyThereIsNoDriver) {
  const Failure failures[] = {
      {"error nvmlInit_v2 9\n", Trouble::not_loaded, "sudo modprobe nvidia"},
      {"error nvmlInit_v2 18\n", Trouble::version_mismatch,
       "of different versions, as after an upgrade: reboot"},
      {"error nvmlInit_v2 4\n", Trouble::no_permission, "/dev/nvidia*"},
      {"error nvmlInit_v2 999\n", Trouble::other, "nvmlInit_v2: Unknown Error (999)"},
      {"error nvmlDeviceGetCount_v2 999\n", Trouble::other, "nvmlDeviceGetCount_v2: Unknown Error (999)"},
  };
  for (const auto& [script, trouble, text] : failures) {
    FakeGpus gpus(std::string(script) + kTwoCards);
    const Snapshot now = snapshot(Wanted::all);
    EXPECT_EQ(now.trouble, trouble) << script;
    EXPECT_FALSE(now.driver);
    EXPECT_NE(now.driver.text().find(text), std::string::npos) << now.driver.text();
    EXPECT_EQ(now.driver.text().find('\n'), std::string::npos);
    EXPECT_TRUE(now.cards.empty());
    shut_down();
    gpus.change(kTwoCards);  // cured: nothing of the failure is kept
    EXPECT_EQ(snapshot(Wanted::all).cards.size(), 2u) << script;
  }
}

TEST(TelemetryLife, SaysThatThereIsNoLibrary) {
  const FakeGpus gpus(kTwoCards);
  setenv("INNKEEPER_NVML", "/nonexistent/libnvidia-ml.so.1", 1);
  const Snapshot none = snapshot(Wanted::all);
  EXPECT_EQ(none.trouble, Trouble::no_library);
  EXPECT_EQ(none.driver.outcome(), Outcome::no_driver);
  EXPECT_NE(none.driver.text().find("docker run --gpus all"), std::string::npos);
  setenv("INNKEEPER_NVML", "libm.so.6", 1);
  EXPECT_EQ(snapshot(Wanted::all).trouble, Trouble::bad_library);
}

TEST(TelemetryLife, OneLostCardHidesNoOther) {
  for (const char* how :
       {"  lost\n", "  error nvmlDeviceGetHandleByIndex_v2 15\n", "  error nvmlDeviceGetHandleByIndex_v2 1\n",
        "  error nvmlDeviceGetUUID 15\n", "  error nvmlDeviceGetMemoryInfo_v2 15\n",
        "  error nvmlDeviceGetPowerUsage 28\n"}) {
    const FakeGpus gpus(std::string("card GPU-aaaaaaaa\n  bus 00000000:01:00.0\n") + how +
                        "card GPU-bbbbbbbb\n  bus 00000000:02:00.0\n  memory 8G 0 2G\n");
    const Snapshot now = snapshot(Wanted::all);
    ASSERT_EQ(now.cards.size(), 1u) << how;
    EXPECT_EQ(now.cards[0].uuid, "GPU-bbbbbbbb");
    EXPECT_EQ(now.cards[0].memory->used, GiB(2));
    ASSERT_EQ(now.lost.size(), 1u) << how;
    EXPECT_EQ(now.lost[0].driver_index, 0);
    EXPECT_NE(now.lost[0].why.find("nvmlDevice"), std::string::npos) << now.lost[0].why;
    EXPECT_FALSE(now.lost[0].forbidden);
  }
}

TEST(TelemetryLife, ACardWithoutIdentityIsNoCard) {
  const FakeGpus gpus(
      "card GPU-aaaaaaaa\n"
      "card GPU-aaaaaaaa\n"   // twice the same
      "card nonsense,UUID\n"  // would end a list in CUDA_VISIBLE_DEVICES
      "card GPU-cccccccc\n  error nvmlDeviceGetUUID 3\n"
      "card GPU-dddddddd\n  error nvmlDeviceGetHandleByIndex_v2 4\n");
  const Snapshot now = snapshot(Wanted::all);
  EXPECT_EQ(now.cards.size(), 1u);
  ASSERT_EQ(now.lost.size(), 4u);
  EXPECT_EQ(now.lost[0].why, "another card has the same UUID");
  EXPECT_NE(now.lost[1].why.find("no UUID: \"nonsense,UUID\""), std::string::npos);
  EXPECT_EQ(now.lost[2].why, "it has no UUID");
  EXPECT_FALSE(now.lost[2].forbidden);
  EXPECT_TRUE(now.lost[3].forbidden);
}

TEST(TelemetryLife, TakesHandlesAnew) {
  FakeGpus gpus(kTwoCards);
  EXPECT_EQ(snapshot(Wanted::memory).cards[0].memory->used, GiB(1));
  gpus.change("card GPU-cccccccc\n  memory 8G 0 5G\n");  // all handles of before are stale
  const Snapshot now = snapshot(Wanted::memory);
  ASSERT_EQ(now.cards.size(), 1u);
  EXPECT_EQ(now.cards[0].memory->used, GiB(5));
  EXPECT_TRUE(now.lost.empty());
}

TEST(TelemetryLife, StartsAnewNowAndThenWhileACardIsLost) {
  FakeGpus gpus("card GPU-aaaaaaaa\n  lost\n");
  const auto begin = std::chrono::steady_clock::now();
  int snapshots = 0;
  while (gpus.calls("nvmlInit_v2") < 3 && std::chrono::steady_clock::now() - begin < 45s) {
    EXPECT_TRUE(snapshot(Wanted::memory).cards.empty());
    ++snapshots;
    std::this_thread::sleep_for(10ms);
  }
  // At the beginning, half a second later, and again.
  EXPECT_EQ(gpus.calls("nvmlInit_v2"), 3);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 1s);
  EXPECT_EQ(gpus.calls("nvmlShutdown"), gpus.calls("nvmlInit_v2") - 1);
  gpus.change("card GPU-aaaaaaaa\n");
  EXPECT_EQ(snapshot(Wanted::memory).cards.size(), 1u);
}

TEST(TelemetryLife, AForbiddenCardIsNoReasonToStartAnew) {
  const FakeGpus gpus("card GPU-aaaaaaaa\n  error nvmlDeviceGetHandleByIndex_v2 4\n");
  EXPECT_EQ(snapshot(Wanted::memory).lost.size(), 1u);
  std::this_thread::sleep_for(550ms);
  EXPECT_EQ(snapshot(Wanted::memory).lost.size(), 1u);
  EXPECT_EQ(gpus.calls("nvmlInit_v2"), 1);
}

TEST(TelemetryLife, SurvivesThatSomebodyElseShutsTheLibraryDown) {
  const FakeGpus gpus(kTwoCards);
  EXPECT_EQ(snapshot(Wanted::memory).cards.size(), 2u);
  void* library = dlopen(test::fake_nvml_path().c_str(), RTLD_LAZY | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr);
  const auto shutdown = reinterpret_cast<int (*)()>(dlsym(library, "nvmlShutdown"));
  EXPECT_EQ(shutdown(), 0);
  dlclose(library);
  const Snapshot now = snapshot(Wanted::memory);
  EXPECT_EQ(now.cards.size(), 2u);
  EXPECT_EQ(now.trouble, Trouble::none);
}

// Exit status of a child that runs `check`.
template <class Check>
int in_child(const Check& check) {
  const pid_t child = fork();
  if (child == 0) _exit(check() ? 0 : 1);
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

TEST(TelemetryLife, AChildStartsItsOwn) {
  const FakeGpus gpus(kTwoCards);
  EXPECT_EQ(snapshot(Wanted::memory).cards.size(), 2u);
  const int status = in_child([&] {
    const bool sees = snapshot(Wanted::memory).cards.size() == 2 && gpus.calls("nvmlInit_v2") == 1;
    const bool child_sees = in_child([] { return snapshot(Wanted::memory).cards.size() == 2; }) == 0;
    return sees && child_sees && gpus.calls("nvmlShutdown") == 0;
  });
  EXPECT_EQ(status, 0);
  // The parent's is as it was.
  EXPECT_EQ(snapshot(Wanted::memory).cards.size(), 2u);
  EXPECT_EQ(gpus.calls("nvmlInit_v2"), 1);
}

TEST(TelemetryLife, AChildLeavesItsParentsAlone) {
  const FakeGpus gpus(kTwoCards);
  EXPECT_EQ(snapshot(Wanted::memory).cards.size(), 2u);
  EXPECT_EQ(in_child([&] {
              shut_down();
              return gpus.calls("nvmlShutdown") == 0;
            }),
            0);
  EXPECT_EQ(snapshot(Wanted::memory).cards.size(), 2u);
  EXPECT_EQ(gpus.calls("nvmlInit_v2"), 1);
}

TEST(TelemetryLife, NoLockIsHeldAcrossACall) {
  FakeGpus gpus(kTwoCards);
  snapshot(Wanted::nothing);
  gpus.change(std::string("hold nvmlDeviceGetCount_v2\n") + kTwoCards);
  std::atomic<int> through = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      snapshot(Wanted::nothing);
      ++through;
    });
  }
  // All of them are inside the library before the first is through.
  EXPECT_TRUE(test::soon([&] { return gpus.calls("nvmlDeviceGetCount_v2") == 5; }));
  EXPECT_EQ(through, 0);
  // And a child that is made meanwhile gets as far.
  const pid_t child = fork();
  if (child == 0) _exit(snapshot(Wanted::nothing).cards.size() == 2 ? 0 : 1);
  EXPECT_TRUE(test::soon([&] { return gpus.calls("nvmlDeviceGetCount_v2", child) == 1; }));
  gpus.change(kTwoCards);
  for (std::thread& thread : threads) thread.join();
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(TelemetryLife, ThreadsShareOneStart) {
  const FakeGpus gpus(std::string("slow nvmlInit_v2 20\n") + kTwoCards);
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 20; ++k) {
        if (snapshot(Wanted::memory).cards.size() == 2) ++right;
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
  const FakeGpus gpus(kTwoCards);
  snapshot(Wanted::memory | Wanted::utilization | Wanted::power);
  EXPECT_EQ(gpus.calls("nvmlDeviceGetComputeRunningProcesses_v3"), 0);
  snapshot(Wanted::processes);
  EXPECT_EQ(gpus.calls("nvmlDeviceGetComputeRunningProcesses_v3"), 2) << "both cards";
}

}  // namespace
}  // namespace innkeeper::telemetry
