// The part of CUDA's C interface that the fake answers, declared from its public documentation: the build
// needs nothing of NVIDIA's. Layouts and numbers are those of CUDA 13; abi_check.cc compares them with its
// headers where they exist (`make cuda`).
#pragma once

#include <cstddef>
#include <cstdint>

namespace fake_cuda {

// cudaError_t and CUresult share these numbers.
using Error = int;
inline constexpr Error kSuccess = 0;
inline constexpr Error kInvalidValue = 1;
inline constexpr Error kOutOfMemory = 2;
inline constexpr Error kInitialization = 3;
inline constexpr Error kUnloading = 4;
inline constexpr Error kInsufficientDriver = 35;
inline constexpr Error kDevicesUnavailable = 46;
inline constexpr Error kNoDevice = 100;
inline constexpr Error kInvalidDevice = 101;
inline constexpr Error kEccUncorrectable = 214;
inline constexpr Error kInvalidHandle = 400;
inline constexpr Error kIllegalState = 401;
inline constexpr Error kNotReady = 600;
inline constexpr Error kIllegalAddress = 700;
inline constexpr Error kPeerAlreadyEnabled = 704;
inline constexpr Error kPeerNotEnabled = 705;
inline constexpr Error kHostAlreadyRegistered = 712;
inline constexpr Error kHostNotRegistered = 713;
inline constexpr Error kLaunchFailure = 719;
inline constexpr Error kNotSupported = 801;
inline constexpr Error kCaptureUnsupported = 900;
inline constexpr Error kUnknown = 999;

// Version of the runtime, and of the driver unless a test sets another.
inline constexpr int kVersion = 13000;
inline constexpr unsigned kNonBlocking = 1;
inline constexpr int kCaptureNone = 0;
inline constexpr int kCaptureActive = 1;
inline constexpr int kMemoryUnregistered = 0;
inline constexpr int kMemoryHost = 1;
inline constexpr int kMemoryDevice = 2;
inline constexpr int kLocationDevice = 1;
inline constexpr int kPointerDevicePointer = 3;
inline constexpr int kPointerDeviceOrdinal = 9;
inline constexpr int kVirtualMemorySupported = 102;  // Attribute of the driver.

// Opaque to callers.
using StreamHandle = void*;
using EventHandle = void*;
using GraphHandle = void*;
using HostFunction = void (*)(void*);
using StreamCallback = void (*)(StreamHandle, Error, void*);

struct Dim3 {
  unsigned x, y, z;
};

// cudaDeviceProp with some fields filled in, by offset, since only a caller's copy reads them.
struct Properties {
  static constexpr size_t kUuid = 256, kTotalMemory = 288, kSharedPerBlock = 296, kRegistersPerBlock = 304,
                          kWarp = 308, kPitch = 312, kThreadsPerBlock = 320, kThreadsDim = 324,
                          kGridSize = 336, kConstMemory = 352, kMajor = 360, kMinor = 364,
                          kTextureAlignment = 368, kPitchAlignment = 376, kProcessors = 384,
                          kIntegrated = 388, kMapHost = 392, kConcurrentKernels = 560, kPciBus = 568,
                          kCopyEngines = 584, kUnifiedAddressing = 588, kBusWidth = 592, kL2 = 596,
                          kThreadsPerProcessor = 604, kPriorities = 608, kSharedPerProcessor = 624,
                          kRegistersPerProcessor = 632, kManaged = 636, kPageableAccess = 652,
                          kConcurrentManaged = 656, kHostPointer = 664, kCooperative = 668,
                          kSharedOptin = 672, kHostPageTables = 680, kHostAccess = 684,
                          kBlocksPerProcessor = 688, kHostRegister = 704, kMps = 764;
  alignas(8) char bytes[1008];
};

struct PointerAttributes {
  int type;
  int device;
  void* device_pointer;
  void* host_pointer;
  long reserved[8];
};
static_assert(sizeof(PointerAttributes) == 88);

struct FunctionAttributes {
  size_t shared_bytes, const_bytes, local_bytes;
  int threads_per_block, registers, ptx, binary;
  int rest[26];
};
static_assert(sizeof(FunctionAttributes) == 144);

struct LaunchConfig {
  Dim3 grid, block;
  size_t shared;
  StreamHandle stream;
  void* attributes;
  unsigned attribute_count;
};
static_assert(sizeof(LaunchConfig) == 56 && offsetof(LaunchConfig, stream) == 32);

struct AllocationProp {
  int type, handle_types, location_type, location_id;
  void* unused;
  unsigned char flags[8];
};
static_assert(sizeof(AllocationProp) == 32 && offsetof(AllocationProp, location_type) == 8);

}  // namespace fake_cuda
