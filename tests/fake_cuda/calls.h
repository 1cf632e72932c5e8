// CUDA functions that the fake's tests call, and shared helpers of the tests. The fake reads the environment
// once, so a test with settings of its own runs in a process of its own (in_process).
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "runtime/abi.h"
#include "runtime/control.h"

namespace fake_cuda {

extern "C" {
Error cudaGetLastError();
const char* cudaGetErrorString(Error error);
Error cudaGetDeviceCount(int* count);
Error cudaGetDevice(int* index);
Error cudaSetDevice(int index);
Error cudaGetDeviceProperties(Properties* properties, int index);
Error cudaDeviceCanAccessPeer(int* can, int index, int peer);
Error cudaDeviceEnablePeerAccess(int peer, unsigned flags);
Error cudaDeviceSynchronize();
Error cudaMalloc(void** data, size_t size);
Error cudaFree(void* data);
Error cudaMemGetInfo(size_t* left, size_t* total);
Error cudaHostAlloc(void** data, size_t size, unsigned flags);
Error cudaFreeHost(void* data);
Error cudaHostRegister(void* data, size_t size, unsigned flags);
Error cudaHostUnregister(void* data);
Error cudaPointerGetAttributes(PointerAttributes* attributes, const void* data);
Error cudaMemcpyAsync(void* to, const void* from, size_t size, int kind, StreamHandle stream);
Error cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t size, StreamHandle stream);
Error cudaMemcpy(void* to, const void* from, size_t size, int kind);
Error cudaMemsetAsync(void* data, int value, size_t size, StreamHandle stream);
Error cudaStreamCreateWithPriority(StreamHandle* stream, unsigned flags, int priority);
Error cudaStreamDestroy(StreamHandle stream);
Error cudaStreamSynchronize(StreamHandle stream);
Error cudaStreamQuery(StreamHandle stream);
Error cudaStreamWaitEvent(StreamHandle stream, EventHandle event, unsigned flags);
Error cudaLaunchHostFunc(StreamHandle stream, HostFunction function, void* data);
Error cudaEventCreateWithFlags(EventHandle* event, unsigned flags);
Error cudaEventDestroy(EventHandle event);
Error cudaEventRecord(EventHandle event, StreamHandle stream);
Error cudaEventQuery(EventHandle event);
Error cudaEventSynchronize(EventHandle event);
Error cudaStreamBeginCapture(StreamHandle stream, int mode);
Error cudaStreamEndCapture(StreamHandle stream, GraphHandle* graph);
Error cudaGraphInstantiateWithFlags(GraphHandle* executable, GraphHandle graph, unsigned long long flags);
Error cudaGraphLaunch(GraphHandle executable, StreamHandle stream);
Error cuMemAddressReserve(unsigned long long* at, size_t size, size_t, unsigned long long,
                          unsigned long long);
Error cuMemCreate(unsigned long long* handle, size_t size, const AllocationProp* prop, unsigned long long);
Error cuMemRelease(unsigned long long handle);
Error cuMemMap(unsigned long long at, size_t size, size_t offset, unsigned long long handle,
               unsigned long long);
Error cuMemUnmap(unsigned long long at, size_t size);
}

inline constexpr int kDefaultKind = 4;  // Value of cudaMemcpyDefault.
inline constexpr int kLate = 0, kEarly = 1, kRandom = 2;

// Each test begins late, with GPUs that work, and ends with nothing pending and without violations.
class FakeCuda : public testing::Test {
 protected:
  void SetUp() override {
    fake_cuda_set_mode(kLate, 1);
    ASSERT_EQ(cudaSetDevice(0), kSuccess);
  }
  void TearDown() override {
    fake_cuda_cancel_failures();
    fake_cuda_repair(0);
    fake_cuda_run();
    (void)cudaGetLastError();
    EXPECT_EQ(fake_cuda_violations(), 0);
    fake_cuda_forget_violations();
  }

  static StreamHandle stream() {
    StreamHandle made = nullptr;
    EXPECT_EQ(cudaStreamCreateWithPriority(&made, kNonBlocking, 0), kSuccess);
    return made;
  }
  static EventHandle event() {
    EventHandle made = nullptr;
    EXPECT_EQ(cudaEventCreateWithFlags(&made, 0), kSuccess);
    return made;
  }
  static char* device_memory(size_t size) {
    void* data = nullptr;
    EXPECT_EQ(cudaMalloc(&data, size), kSuccess);
    return static_cast<char*>(data);
  }
  static char* locked_memory(size_t size) {
    void* data = nullptr;
    EXPECT_EQ(cudaHostAlloc(&data, size, 0), kSuccess);
    return static_cast<char*>(data);
  }
  // The bytes of device memory, after a wait.
  static std::string bytes(const void* device, size_t size) {
    std::string text(size, '?');
    EXPECT_EQ(cudaDeviceSynchronize(), kSuccess);
    EXPECT_EQ(cudaMemcpy(text.data(), device, size, kDefaultKind), kSuccess);
    return text;
  }
};

// Runs `body` in a process that starts with these settings; `body` must return true there.
inline void in_process(const std::vector<std::pair<const char*, const char*>>& environment,
                       const std::function<bool()>& body, int status = 0) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        for (const auto& [name, value] : environment) setenv(name, value, 1);
        if (!body()) {
          fprintf(stderr, "the body failed\n");
          _exit(1);
        }
        exit(0);
      },
      testing::ExitedWithCode(status), "");
}

}  // namespace fake_cuda
