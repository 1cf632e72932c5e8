// A program that waits is right in every mode; without one of its waits it is wrong in late mode.
#include <unistd.h>

#include <string>

#include "calls.h"

namespace fake_cuda {
namespace {

constexpr size_t kSize = 64;

// Bytes go up on one stream, across on another and down on a third, each in order by an event. `skip` leaves
// one of the waits out. Returns the bytes that arrive.
class Ordering : public FakeCuda {
 protected:
  enum Wait { kNone, kUpToAcross, kAcrossToDown, kDownToHost };

  static std::string run(Wait skip) {
    char* source = locked_memory(kSize);
    char* target = locked_memory(kSize);
    char* first = device_memory(kSize);
    char* second = device_memory(kSize);
    StreamHandle up = stream(), across = stream(), down = stream();
    EventHandle uploaded = event(), moved = event(), downloaded = event();
    memset(source, 'x', kSize);
    memset(target, '-', kSize);
    EXPECT_EQ(cudaMemcpyAsync(first, source, kSize, kDefaultKind, up), kSuccess);
    EXPECT_EQ(cudaEventRecord(uploaded, up), kSuccess);
    if (skip != kUpToAcross) {
      EXPECT_EQ(cudaStreamWaitEvent(across, uploaded, 0), kSuccess);
    }
    EXPECT_EQ(cudaMemcpyAsync(second, first, kSize, kDefaultKind, across), kSuccess);
    EXPECT_EQ(cudaEventRecord(moved, across), kSuccess);
    if (skip != kAcrossToDown) {
      EXPECT_EQ(cudaStreamWaitEvent(down, moved, 0), kSuccess);
    }
    EXPECT_EQ(cudaMemcpyAsync(target, second, kSize, kDefaultKind, down), kSuccess);
    EXPECT_EQ(cudaEventRecord(downloaded, down), kSuccess);
    if (skip != kDownToHost) {
      EXPECT_EQ(cudaEventSynchronize(downloaded), kSuccess);
    }
    std::string seen(target, kSize);
    fake_cuda_run();
    for (char* data : {first, second}) EXPECT_EQ(cudaFree(data), kSuccess);
    for (char* data : {source, target}) EXPECT_EQ(cudaFreeHost(data), kSuccess);
    for (EventHandle each : {uploaded, moved, downloaded}) EXPECT_EQ(cudaEventDestroy(each), kSuccess);
    for (StreamHandle each : {up, across, down}) EXPECT_EQ(cudaStreamDestroy(each), kSuccess);
    return seen;
  }
};

const std::string kRight(kSize, 'x');
const std::string kPoisoned(kSize, '\xff');

TEST_F(Ordering, AProgramThatWaitsIsRightInEveryMode) {
  for (const int mode : {kLate, kEarly, kRandom}) {
    for (unsigned seed = 1; seed <= 20; ++seed) {
      fake_cuda_set_mode(mode, seed);
      EXPECT_EQ(run(kNone), kRight) << mode << " " << seed;
    }
  }
}
TEST_F(Ordering, AForgottenWaitBetweenStreamsReadsPoison) {
  EXPECT_EQ(run(kUpToAcross), kPoisoned);
  EXPECT_EQ(run(kAcrossToDown), kPoisoned);
}
TEST_F(Ordering, AForgottenWaitOfTheHostReadsPoisonNotOldBytes) { EXPECT_EQ(run(kDownToHost), kPoisoned); }
TEST_F(Ordering, EarlyHidesForgottenWaits) {
  fake_cuda_set_mode(kEarly, 1);
  EXPECT_EQ(run(kUpToAcross), kRight);
}
TEST_F(Ordering, SomeSeedFindsAForgottenWait) {
  int found = 0;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    fake_cuda_set_mode(kRandom, seed);
    found += run(kUpToAcross) != kRight ? 1 : 0;
  }
  EXPECT_GT(found, 0);
  EXPECT_LT(found, 20);  // Some orders hide it; otherwise random would be late.
}

TEST_F(Ordering, FromLockedMemoryBytesAreReadWhenTheCopyRuns) {
  char* source = locked_memory(kSize);
  char* target = device_memory(kSize);
  StreamHandle s = stream();
  memset(source, 'a', kSize);
  ASSERT_EQ(cudaMemcpyAsync(target, source, kSize, kDefaultKind, s), kSuccess);
  memset(source, 'b', kSize);  // too early
  EXPECT_EQ(bytes(target, kSize), std::string(kSize, 'b'));
  EXPECT_EQ(cudaFreeHost(source), kSuccess);
  EXPECT_EQ(cudaFree(target), kSuccess);
}
TEST_F(Ordering, FromOtherMemoryBytesAreReadAtOnce) {
  std::string source(kSize, 'a');
  char* target = device_memory(kSize);
  ASSERT_EQ(cudaMemcpyAsync(target, source.data(), kSize, kDefaultKind, stream()), kSuccess);
  source.assign(kSize, 'b');
  EXPECT_EQ(bytes(target, kSize), std::string(kSize, 'a'));
  EXPECT_EQ(cudaFree(target), kSuccess);
}
TEST_F(Ordering, TheDefaultStreamWaitsForBlockingStreamsAlone) {
  for (const unsigned flags : {0U, kNonBlocking}) {
    char* data = device_memory(kSize);
    char* seen = locked_memory(kSize);
    StreamHandle other = nullptr;
    ASSERT_EQ(cudaStreamCreateWithPriority(&other, flags, 0), kSuccess);
    ASSERT_EQ(cudaMemsetAsync(data, 'y', kSize, other), kSuccess);
    ASSERT_EQ(cudaMemcpyAsync(seen, data, kSize, kDefaultKind, nullptr), kSuccess);
    ASSERT_EQ(cudaStreamSynchronize(nullptr), kSuccess);
    EXPECT_EQ(seen[0], flags == 0 ? 'y' : '\xff');
    fake_cuda_run();
    EXPECT_EQ(cudaFreeHost(seen), kSuccess);
    EXPECT_EQ(cudaFree(data), kSuccess);
  }
}
TEST_F(Ordering, AQueryIsAnsweredNotReadyFirstAndThenRuns) {
  char* data = device_memory(kSize);
  StreamHandle s = stream();
  EventHandle e = event();
  ASSERT_EQ(cudaMemsetAsync(data, 1, kSize, s), kSuccess);
  ASSERT_EQ(cudaEventRecord(e, s), kSuccess);
  EXPECT_EQ(cudaEventQuery(e), kNotReady);
  EXPECT_EQ(cudaStreamQuery(s), kNotReady);
  EXPECT_EQ(cudaEventQuery(e), kNotReady);
  EXPECT_EQ(cudaEventQuery(e), kSuccess);
  EXPECT_EQ(cudaStreamQuery(s), kSuccess);
  EXPECT_EQ(fake_cuda_pending(), 0U);
  EXPECT_EQ(cudaFree(data), kSuccess);
}
TEST_F(Ordering, AGraphRunsAtEachLaunchNotWhenItIsCaptured) {
  char* data = device_memory(kSize);
  StreamHandle s = stream();
  GraphHandle graph = nullptr, executable = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(s, 0), kSuccess);
  ASSERT_EQ(cudaMemsetAsync(data, 'g', kSize, s), kSuccess);
  ASSERT_EQ(cudaStreamEndCapture(s, &graph), kSuccess);
  ASSERT_EQ(cudaGraphInstantiateWithFlags(&executable, graph, 0), kSuccess);
  EXPECT_EQ(bytes(data, kSize), kPoisoned);
  for (const char before : {'1', '2'}) {
    ASSERT_EQ(cudaMemsetAsync(data, before, kSize, s), kSuccess);
    ASSERT_EQ(cudaGraphLaunch(executable, s), kSuccess);
    EXPECT_EQ(bytes(data, kSize), std::string(kSize, 'g'));
  }
  EXPECT_EQ(cudaFree(data), kSuccess);
}
TEST_F(Ordering, AKernelRunsOnItsStreamAndIsForgottenOnce) {
  struct Kernel {
    char* data;
    int* forgotten;
  };
  int forgotten = 0;
  char* data = device_memory(kSize);
  StreamHandle s = stream();
  ASSERT_EQ(fake_cuda_launch(
                s,
                [](void* state) {
                  char* at = fake_cuda_open(static_cast<Kernel*>(state)->data, kSize);
                  if (at != nullptr) memset(at, 'k', kSize);
                },
                new Kernel{data, &forgotten},
                [](void* state) {
                  ++*static_cast<Kernel*>(state)->forgotten;
                  delete static_cast<Kernel*>(state);
                }),
            kSuccess);
  EXPECT_EQ(forgotten, 0);
  EXPECT_EQ(bytes(data, kSize), std::string(kSize, 'k'));
  EXPECT_EQ(forgotten, 1);
  EXPECT_EQ(cudaFree(data), kSuccess);
}

}  // namespace
}  // namespace fake_cuda
