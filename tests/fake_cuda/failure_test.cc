// Failures on demand: one call, a GPU that is broken for good, a driver too old, a process that was forked.
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "calls.h"
#include "runtime/report.h"

namespace fake_cuda {
namespace {

constexpr size_t kSize = 64;
using Failure = FakeCuda;

// Copies up, across and down on the current GPU; returns the first error, and the bytes that arrived.
Error round_trip(std::string* seen) {
  void *first = nullptr, *second = nullptr, *host = nullptr;
  StreamHandle s = nullptr;
  EventHandle e = nullptr;
  const Error errors[] = {
      cudaHostAlloc(&host, kSize, 0),
      cudaMalloc(&first, kSize),
      cudaMalloc(&second, kSize),
      cudaStreamCreateWithPriority(&s, kNonBlocking, 0),
      cudaEventCreateWithFlags(&e, 0),
      first == nullptr ? kSuccess : cudaMemsetAsync(first, 'r', kSize, s),
      first == nullptr || second == nullptr ? kSuccess
                                            : cudaMemcpyAsync(second, first, kSize, kDefaultKind, s),
      host == nullptr || second == nullptr ? kSuccess : cudaMemcpyAsync(host, second, kSize, kDefaultKind, s),
      e == nullptr ? kSuccess : cudaEventRecord(e, s),
      e == nullptr ? kSuccess : cudaEventSynchronize(e),
      cudaDeviceSynchronize(),
  };
  if (host != nullptr) seen->assign(static_cast<char*>(host), kSize);
  (void)cudaFree(first);
  (void)cudaFree(second);
  (void)cudaFreeHost(host);
  if (e != nullptr) (void)cudaEventDestroy(e);
  if (s != nullptr) (void)cudaStreamDestroy(s);
  for (const Error error : errors) {
    if (error != kSuccess) return error;
  }
  return kSuccess;
}

TEST_F(Failure, EveryCallCanBeMadeToFailOnce) {
  std::string seen;
  const long before = fake_cuda_calls();
  ASSERT_EQ(round_trip(&seen), kSuccess);
  const long calls = fake_cuda_calls() - before;
  ASSERT_GT(calls, 12);
  for (long n = 0; n < calls; ++n) {
    fake_cuda_fail("", n, kUnknown, 0);
    (void)round_trip(&seen);
    EXPECT_EQ(fake_cuda_failures_left(), 0) << n;
    EXPECT_STRNE(fake_cuda_failed_call(), "");
    (void)cudaGetLastError();
    fake_cuda_run();
    EXPECT_EQ(round_trip(&seen), kSuccess) << n << " " << fake_cuda_failed_call();
    EXPECT_EQ(seen, std::string(kSize, 'r'));
  }
}
TEST_F(Failure, ByNameAndAfterOthers) {
  fake_cuda_fail("cudaMalloc", 1, kOutOfMemory, 0);
  void* data = nullptr;
  ASSERT_EQ(cudaMalloc(&data, 1), kSuccess);
  void* none = nullptr;
  EXPECT_EQ(cudaMalloc(&none, 1), kOutOfMemory);
  EXPECT_STREQ(fake_cuda_failed_call(), "cudaMalloc");
  EXPECT_EQ(cudaFree(data), kSuccess);
}
TEST_F(Failure, AStickyErrorIsAnsweredByEveryCallAndDropsWhatWasPending) {
  char* data = device_memory(kSize);
  char* host = locked_memory(kSize);
  StreamHandle s = stream();
  EventHandle e = event();
  ASSERT_EQ(cudaMemsetAsync(data, 'z', kSize, s), kSuccess);
  ASSERT_EQ(cudaMemcpyAsync(host, data, kSize, kDefaultKind, s), kSuccess);
  ASSERT_EQ(cudaEventRecord(e, s), kSuccess);
  fake_cuda_fail("cudaStreamSynchronize", 0, kIllegalAddress, 1);
  EXPECT_EQ(cudaStreamSynchronize(s), kIllegalAddress);
  EXPECT_EQ(cudaEventSynchronize(e), kIllegalAddress);
  EXPECT_EQ(cudaDeviceSynchronize(), kIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), kIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), kIllegalAddress);  // Clearing the error does not help.
  EXPECT_EQ(fake_cuda_pending(), 0U);
  EXPECT_EQ(host[0], '\xff');  // The copy down never ran.
  fake_cuda_repair(0);
  EXPECT_EQ(bytes(data, kSize), std::string(kSize, '\xff'));
  EXPECT_EQ(cudaFree(data), kSuccess);
  EXPECT_EQ(cudaFreeHost(host), kSuccess);
}
TEST(FakeCudaProcess, ALostGpuLeavesTheOtherAloneAndWhatItHadBeenGiven) {
  in_process({{"FAKE_CUDA_GPUS", "2"}}, [] {
    void *one = nullptr, *two = nullptr;
    StreamHandle on_one = nullptr, on_two = nullptr;
    EventHandle e = nullptr;
    (void)cudaSetDevice(1);
    (void)cudaMalloc(&two, kSize);
    (void)cudaStreamCreateWithPriority(&on_two, kNonBlocking, 0);
    (void)cudaSetDevice(0);
    (void)cudaMalloc(&one, kSize);
    (void)cudaStreamCreateWithPriority(&on_one, kNonBlocking, 0);
    (void)cudaEventCreateWithFlags(&e, 0);
    (void)cudaMemsetAsync(one, 'p', kSize, on_one);
    (void)cudaMemcpyPeerAsync(two, 1, one, 0, kSize, on_one);
    (void)cudaEventRecord(e, on_one);
    (void)cudaStreamWaitEvent(on_two, e, 0);
    (void)cudaMemsetAsync(static_cast<char*>(two) + 1, 'q', 1, on_two);
    fake_cuda_break(0, kUnknown);
    void* none = nullptr;
    if (cudaMalloc(&none, 1) != kUnknown || cudaEventSynchronize(e) != kUnknown) return false;
    // The failure appears at the call that it affects.
    if (cudaStreamWaitEvent(on_two, e, 0) != kUnknown) return false;
    if (cudaMemcpyPeerAsync(two, 1, one, 0, kSize, on_two) != kUnknown) return false;
    char seen[3] = {};
    (void)cudaSetDevice(1);
    (void)cudaGetLastError();
    return cudaStreamSynchronize(on_two) == kSuccess && cudaMemcpy(seen, two, 3, kDefaultKind) == kSuccess &&
           std::string(seen, 3) == "pqp" && cudaMalloc(&none, 1) == kSuccess;
  });
}
TEST(FakeCudaProcess, ADriverThatIsTooOldAnswersSo) {
  in_process({{"FAKE_CUDA_DRIVER", "12080"}}, [] {
    int count = -1;
    void* data = nullptr;
    return cudaGetDeviceCount(&count) == kInsufficientDriver && cudaMalloc(&data, 1) == kInsufficientDriver;
  });
}
TEST(FakeCudaProcess, AMachineWithoutGpusSaysSo) {
  in_process({{"FAKE_CUDA_GPUS", "0"}}, [] {
    int count = -1;
    void* data = nullptr;
    return cudaGetDeviceCount(&count) == kNoDevice && cudaMalloc(&data, 1) == kNoDevice;
  });
}
TEST(FakeCudaProcess, AForkedChildHasNoGpus) {
  in_process({}, [] {
    void* data = nullptr;
    if (cudaMalloc(&data, 1) != kSuccess) return false;
    const pid_t child = fork();
    if (child == 0) {
      const bool refused = cudaMalloc(&data, 1) == kInitialization && fake_cuda_violations() == 1;
      _exit(refused ? 7 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 7 && fake_cuda_violations() == 0;
  });
}
TEST(FakeCudaProcess, AfterTheEndHasBegunTheRuntimeIsGone) {
  in_process(
      {},
      [] {
        std::atexit([] {  // Installed before the runtime's handler, so it runs after that.
          void* data = nullptr;
          if (cudaMalloc(&data, 1) != kUnloading) _exit(1);
        });
        void* data = nullptr;
        return cudaMalloc(&data, 1) == kSuccess;
      },
      kViolationStatus);
}
TEST(FakeCudaProcess, GpusReachEachOtherOnlyAfterTheyWereAskedTo) {
  for (const bool asked : {true, false}) {
    in_process(
        {{"FAKE_CUDA_GPUS", "2"}},
        [asked] {
          void* theirs = nullptr;
          (void)cudaSetDevice(1);
          (void)cudaMalloc(&theirs, kSize);
          (void)cudaSetDevice(0);
          if (asked && cudaDeviceEnablePeerAccess(1, 0) != kSuccess) return false;
          if (asked && cudaDeviceEnablePeerAccess(1, 0) != kPeerAlreadyEnabled) return false;
          (void)fake_cuda_launch(
              nullptr, [](void* data) { (void)fake_cuda_open(data, kSize); }, theirs, [](void*) {});
          return cudaDeviceSynchronize() == (asked ? kSuccess : kIllegalAddress);
        },
        asked ? 0 : kViolationStatus);
  }
}
TEST(FakeCudaProcess, WithoutPeersNoProcessCanAsk) {
  in_process({{"FAKE_CUDA_GPUS", "2"}, {"FAKE_CUDA_PEERS", "0"}}, [] {
    int can = -1;
    return cudaDeviceCanAccessPeer(&can, 0, 1) == kSuccess && can == 0 &&
           cudaDeviceEnablePeerAccess(1, 0) == kInvalidDevice;
  });
}

std::string first_bytes(int count) {
  std::string seen;
  for (int i = 0; i < count; ++i) {
    Properties properties;
    if (cudaGetDeviceProperties(&properties, i) != kSuccess) return "?";
    seen += std::to_string(static_cast<unsigned char>(properties.bytes[Properties::kUuid]) - 0xA0);
  }
  return seen;
}

TEST(FakeCudaProcess, VisibleGpusAreThoseNamedInTheirOrder) {
  const std::pair<const char*, const char*> cases[] = {{"2,0", "20"}, {"GPU-a1,0", "10"}, {"1,7,0", "1"},
                                                       {"", ""},      {"-1,0", ""},       {"0,0", ""}};
  for (const auto& [visible, expected] : cases) {
    in_process({{"FAKE_CUDA_GPUS", "3"}, {"CUDA_VISIBLE_DEVICES", visible}}, [expected = expected] {
      int count = 0;
      (void)cudaGetDeviceCount(&count);
      return first_bytes(count) == expected;
    });
  }
  in_process({{"FAKE_CUDA_GPUS", "2"}, {"FAKE_CUDA_MIG", "1"}, {"CUDA_VISIBLE_DEVICES", "MIG-a1"}},
             [] { return first_bytes(1) == "1"; });
}

}  // namespace
}  // namespace fake_cuda
