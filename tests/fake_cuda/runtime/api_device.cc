// The C interface: devices, versions, errors.
#include <cstdio>
#include <cstring>

#include "runtime/call.h"
#include "runtime/memory.h"
#include "runtime/settings.h"
#include "runtime/stream.h"

namespace fake_cuda {
namespace {

template <class Value>
void put(Properties& properties, size_t offset, Value value) {
  memcpy(properties.bytes + offset, &value, sizeof value);
}

// Of a GPU with eight processors of the ninth generation.
void describe(Properties& p, const Gpu& gpu) {
  using P = Properties;
  memset(&p, 0, sizeof p);
  snprintf(p.bytes, P::kUuid, "%s", gpu.name.c_str());
  memcpy(p.bytes + P::kUuid, gpu.uuid_bytes, sizeof gpu.uuid_bytes);
  put(p, P::kTotalMemory, gpu.total);
  put(p, P::kSharedPerBlock, size_t{48} << 10);
  put(p, P::kSharedOptin, size_t{227} << 10);
  put(p, P::kSharedPerProcessor, size_t{228} << 10);
  put(p, P::kConstMemory, size_t{64} << 10);
  put(p, P::kTextureAlignment, size_t{512});
  put(p, P::kPitchAlignment, size_t{32});
  put(p, P::kPitch, size_t{0x7fffffff});
  for (const size_t offset : {P::kRegistersPerBlock, P::kRegistersPerProcessor}) put(p, offset, 65536);
  put(p, P::kWarp, 32);
  put(p, P::kThreadsPerBlock, 1024);
  put(p, P::kThreadsPerProcessor, 2048);
  put(p, P::kBlocksPerProcessor, 32);
  const int threads[3] = {1024, 1024, 64};
  const int grid[3] = {0x7fffffff, 65535, 65535};
  memcpy(p.bytes + P::kThreadsDim, threads, sizeof threads);
  memcpy(p.bytes + P::kGridSize, grid, sizeof grid);
  put(p, P::kMajor, 9);
  put(p, P::kProcessors, 8);
  put(p, P::kPciBus, gpu.index + 1);
  put(p, P::kCopyEngines, 3);
  put(p, P::kBusWidth, 512);
  put(p, P::kL2, 4 << 20);
  for (const size_t offset : {P::kMapHost, P::kConcurrentKernels, P::kUnifiedAddressing, P::kPriorities,
                              P::kHostPointer, P::kCooperative, P::kHostRegister, P::kManaged})
    put(p, offset, 1);
  const int unified = settings().unified ? 1 : 0;
  for (const size_t offset :
       {P::kIntegrated, P::kPageableAccess, P::kConcurrentManaged, P::kHostPageTables, P::kHostAccess})
    put(p, offset, unified);
  put(p, P::kMps, settings().mps ? 1 : 0);
}

int attribute(int which) {
  switch (which) {
    case 1: return 1024;                          // threads in a block
    case 8: return 48 << 10;                      // shared memory of a block
    case 10: return 32;                           // warp
    case 13: return 1'980'000;                    // the processors' clock, kHz
    case 16: return 8;                            // processors
    case 36: return 2'619'000;                    // the memory's clock, kHz
    case 37: return 5120;                         // the memory bus's width, bits
    case 39: return 2048;                         // threads of a processor
    case 75: return 9;                            // generation
    case 97: return 227 << 10;                    // shared memory of a block that asks for more
    case 18:                                      // integrated
    case 88:                                      // reaches pageable memory
    case 100: return settings().unified ? 1 : 0;  // reaches it by the host's page tables
    case 41:                                      // one address space
    case 78:                                      // priorities of streams
    case 83:                                      // managed memory
    case 91:                                      // registered memory at the host's address
    case 95:                                      // cooperative launches
    case 99:                                      // host memory can be registered
    case kVirtualMemorySupported: return 1;
    default: return 0;
  }
}

struct Name {
  Error error;
  const char* name;
  const char* text;
};
constexpr Name kNames[] = {
    {kSuccess, "cudaSuccess", "no error"},
    {kInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {kOutOfMemory, "cudaErrorMemoryAllocation", "out of memory"},
    {kInitialization, "cudaErrorInitializationError", "initialization error"},
    {kUnloading, "cudaErrorCudartUnloading", "driver shutting down"},
    {kInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {kDevicesUnavailable, "cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable"},
    {kNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {kInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {kEccUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {kInvalidHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {kIllegalState, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
    {kNotReady, "cudaErrorNotReady", "device not ready"},
    {kIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {kPeerAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    {kPeerNotEnabled, "cudaErrorPeerAccessNotEnabled", "peer access has not been enabled"},
    {kHostAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the memory is already registered"},
    {kHostNotRegistered, "cudaErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {kLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {kNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {kCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {kUnknown, "cudaErrorUnknown", "unknown error"},
};
const Name& name_of(Error error) {
  for (const Name& each : kNames) {
    if (each.error == error) return each;
  }
  static constexpr Name kOther{-1, "cudaErrorOfTheFake", "an error that the fake has no words for"};
  return kOther;
}

}  // namespace

extern "C" {

Error cudaGetLastError() {
  const std::lock_guard<std::recursive_mutex> lock(machine_mutex());
  const Error error = std::exchange(last_error(), kSuccess);
  if (error == kSuccess && is_gpu(current_gpu())) return gpu(current_gpu()).broken;
  return error;
}
Error cudaPeekAtLastError() {
  const std::lock_guard<std::recursive_mutex> lock(machine_mutex());
  if (last_error() == kSuccess && is_gpu(current_gpu())) return gpu(current_gpu()).broken;
  return last_error();
}
const char* cudaGetErrorName(Error error) { return name_of(error).name; }
const char* cudaGetErrorString(Error error) { return name_of(error).text; }

Error cudaRuntimeGetVersion(int* version) {
  *version = kVersion;
  return kSuccess;
}
Error cudaDriverGetVersion(int* version) {
  *version = settings().driver;
  return kSuccess;
}

Error cudaGetDeviceCount(int* count) {
  return call("cudaGetDeviceCount", Needs::driver, [&] {
    *count = static_cast<int>(gpus().size());
    return gpus().empty() ? kNoDevice : kSuccess;
  });
}
Error cudaGetDevice(int* index) {
  return call("cudaGetDevice", Needs::choice, [&] {
    *index = current_gpu();
    return kSuccess;
  });
}
Error cudaSetDevice(int index) {
  return call("cudaSetDevice", Needs::choice, [&] {
    if (!is_gpu(index)) return kInvalidDevice;
    current_gpu() = index;
    return kSuccess;
  });
}
Error cudaGetDeviceProperties(Properties* properties, int index) {
  return call("cudaGetDeviceProperties", Needs::driver, [&] {
    if (!is_gpu(index)) return kInvalidDevice;
    describe(*properties, gpu(index));
    return kSuccess;
  });
}
Error cudaDeviceGetAttribute(int* value, int which, int index) {
  return call("cudaDeviceGetAttribute", Needs::driver, [&] {
    if (!is_gpu(index)) return kInvalidDevice;
    *value = attribute(which);
    return kSuccess;
  });
}
Error cudaDeviceGetPCIBusId(char* text, int size, int index) {
  return call("cudaDeviceGetPCIBusId", Needs::driver, [&] {
    if (!is_gpu(index)) return kInvalidDevice;
    snprintf(text, static_cast<size_t>(size), "0000:%02x:00.0",
             static_cast<unsigned>(gpu(index).uuid_bytes[0]));
    return kSuccess;
  });
}
Error cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call("cudaDeviceGetStreamPriorityRange", Needs::gpu, [&] {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
    return kSuccess;
  });
}
Error cudaDeviceCanAccessPeer(int* can, int index, int peer) {
  return call("cudaDeviceCanAccessPeer", Needs::driver, [&] {
    if (!is_gpu(index) || !is_gpu(peer)) return kInvalidDevice;
    *can = index != peer && settings().peers ? 1 : 0;
    return kSuccess;
  });
}
Error cudaDeviceEnablePeerAccess(int peer, unsigned) {
  return call("cudaDeviceEnablePeerAccess", Needs::gpu, [&] {
    if (!is_gpu(peer) || peer == current_gpu() || !settings().peers) return kInvalidDevice;
    std::vector<bool>& peers = gpu(current_gpu()).peers;
    if (peers[static_cast<size_t>(peer)]) return kPeerAlreadyEnabled;
    peers[static_cast<size_t>(peer)] = true;
    return kSuccess;
  });
}
Error cudaDeviceSynchronize() {
  return call("cudaDeviceSynchronize", Needs::gpu, [&] {
    run_gpu(current_gpu());
    return gpu(current_gpu()).broken;
  });
}

}  // extern "C"

}  // namespace fake_cuda
