// The fake reports as a violation each use of memory that would fault on a real GPU.
#include <unistd.h>

#include "calls.h"
#include "runtime/memory.h"
#include "runtime/report.h"

namespace fake_cuda {
namespace {

using Memory = FakeCuda;

void expect_violation(const char* part) {
  EXPECT_EQ(fake_cuda_violations(), 1);
  EXPECT_NE(last_violation().find(part), std::string::npos) << last_violation();
  fake_cuda_forget_violations();
  fake_cuda_repair(0);
}

TEST_F(Memory, FreshMemoryIsPoison) {
  char* data = device_memory(8);
  EXPECT_EQ(bytes(data, 8), std::string(8, '\xff'));
  EXPECT_EQ(cudaFree(data), kSuccess);
}
TEST_F(Memory, AHostThatTouchesAGpuDies) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        char* data = device_memory(8);
        *static_cast<volatile char*>(data) = 1;
      },
      "");
}
TEST_F(Memory, IsCountedInPagesAndRunsOut) {
  size_t left = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&left, &total), kSuccess);
  char* data = device_memory(1);
  EXPECT_EQ(fake_cuda_used(0), kPage);
  void* more = nullptr;
  EXPECT_EQ(cudaMalloc(&more, left), kOutOfMemory);
  EXPECT_EQ(more, nullptr);
  EXPECT_EQ(cudaGetLastError(), kOutOfMemory);
  EXPECT_EQ(cudaGetLastError(), kSuccess);
  EXPECT_EQ(cudaFree(data), kSuccess);
  EXPECT_EQ(fake_cuda_used(0), 0U);
}
TEST_F(Memory, TheDriverLeavesNoErrorForTheRuntimeToFind) {
  size_t left = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&left, &total), kSuccess);
  unsigned long long handle = 0;
  const AllocationProp prop{1, 0, kLocationDevice, 0, nullptr, {}};
  EXPECT_EQ(cuMemCreate(&handle, left + kPage, &prop, 0), kOutOfMemory);
  EXPECT_EQ(cudaGetLastError(), kSuccess);
}
TEST_F(Memory, OthersTakeIt) {
  size_t left = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&left, &total), kSuccess);
  fake_cuda_set_others(0, total - kPage);
  ASSERT_EQ(cudaMemGetInfo(&left, &total), kSuccess);
  EXPECT_EQ(left, kPage);
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, 2 * kPage), kOutOfMemory);
  fake_cuda_set_others(0, 0);
  EXPECT_EQ(cudaMalloc(&data, 2 * kPage), kSuccess);
  EXPECT_EQ(cudaFree(data), kSuccess);
}
TEST_F(Memory, WorkOnMemoryThatWasUnmappedIsNoticed) {
  unsigned long long at = 0, handle = 0;
  const AllocationProp prop{1, 0, kLocationDevice, 0, nullptr, {}};
  ASSERT_EQ(cuMemAddressReserve(&at, kPage, 0, 0, 0), kSuccess);
  ASSERT_EQ(cuMemCreate(&handle, kPage, &prop, 0), kSuccess);
  ASSERT_EQ(cuMemMap(at, kPage, 0, handle, 0), kSuccess);
  EXPECT_EQ(cuMemRelease(handle), kSuccess);
  EXPECT_EQ(fake_cuda_used(0), kPage);  // Still mapped.
  ASSERT_EQ(cudaMemsetAsync(reinterpret_cast<void*>(at), 0, kPage, stream()), kSuccess);
  EXPECT_EQ(cuMemUnmap(at, kPage), kSuccess);
  EXPECT_EQ(fake_cuda_used(0), 0U);
  EXPECT_EQ(cudaDeviceSynchronize(), kIllegalAddress);
  expect_violation("no device memory is (any more)");
}
TEST_F(Memory, UseAfterFreeIsNoticedWhereverItIsGivenOutAgain) {
  char* data = device_memory(8);
  ASSERT_EQ(cudaFree(data), kSuccess);
  char* next = device_memory(8);
  EXPECT_NE(next, data);
  EXPECT_EQ(cudaMemcpyAsync(next, data, 8, kDefaultKind, nullptr), kIllegalAddress);
  expect_violation("a copy touches");
  EXPECT_EQ(cudaFree(next), kSuccess);
}
TEST_F(Memory, FreeingWhatIsNotAllocatedIsNoticed) {
  int local = 0;
  EXPECT_EQ(cudaFree(&local), kInvalidValue);
  expect_violation("cudaFree");
}
TEST_F(Memory, LockedMemoryMayNotGoUnderACopy) {
  char* data = device_memory(8);
  char* host = locked_memory(8);
  ASSERT_EQ(cudaMemcpyAsync(host, data, 8, kDefaultKind, stream()), kSuccess);
  EXPECT_EQ(cudaFreeHost(host), kSuccess);
  expect_violation("cudaFreeHost");
  std::string ours(8, 'x');
  ASSERT_EQ(cudaHostRegister(ours.data(), 8, 0), kSuccess);
  ASSERT_EQ(cudaMemcpyAsync(data, ours.data(), 8, kDefaultKind, stream()), kSuccess);
  EXPECT_EQ(cudaHostUnregister(ours.data()), kSuccess);
  expect_violation("cudaHostUnregister");
  EXPECT_EQ(cudaFree(data), kSuccess);
}
TEST_F(Memory, ACopyMayNotRunOverTheEndOfLockedMemory) {
  std::string host(64, 'x');
  char* data = device_memory(64);
  ASSERT_EQ(cudaHostRegister(host.data(), 32, 0), kSuccess);
  EXPECT_EQ(cudaMemcpyAsync(data, host.data(), 64, kDefaultKind, nullptr), kInvalidValue);
  expect_violation("over the end");
  EXPECT_EQ(cudaHostUnregister(host.data()), kSuccess);
  EXPECT_EQ(cudaFree(data), kSuccess);
}
TEST_F(Memory, LockedBytesAreCounted) {
  const size_t before = fake_cuda_locked_bytes();
  std::string host(64, 'x');
  ASSERT_EQ(cudaHostRegister(host.data(), 64, 0), kSuccess);
  EXPECT_EQ(cudaHostRegister(host.data() + 8, 8, 0), kHostAlreadyRegistered);
  PointerAttributes attributes;
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, host.data() + 8), kSuccess);
  EXPECT_EQ(attributes.type, kMemoryHost);
  EXPECT_EQ(fake_cuda_locked_bytes(), before + 64);
  EXPECT_EQ(cudaHostUnregister(host.data()), kSuccess);
  EXPECT_EQ(cudaHostUnregister(host.data()), kHostNotRegistered);
  EXPECT_EQ(fake_cuda_locked_bytes(), before);
  (void)cudaGetLastError();
}
TEST_F(Memory, AnEventThatWasDestroyedIsNoticed) {
  EventHandle e = event();
  ASSERT_EQ(cudaEventDestroy(e), kSuccess);
  EXPECT_EQ(cudaEventQuery(e), kInvalidHandle);
  expect_violation("none (any more)");
}
TEST_F(Memory, AViolationEndsTheProcessWithItsOwnStatus) {
  in_process(
      {},
      [] {
        int local = 0;
        (void)cudaFree(&local);
        return true;
      },
      kViolationStatus);
}

}  // namespace
}  // namespace fake_cuda
