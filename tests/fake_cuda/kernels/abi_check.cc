// Compares runtime/abi.h with CUDA's own headers, where they are: compiled, never run.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "runtime/abi.h"

namespace {

using P = fake_cuda::Properties;

#define SAME(ours, theirs) \
  static_assert(static_cast<long long>(ours) == static_cast<long long>(theirs), #ours " is not " #theirs)
#define FIELD(ours, theirs) SAME(P::ours, offsetof(cudaDeviceProp, theirs))

static_assert(CUDART_VERSION / 1000 == fake_cuda::kVersion / 1000, "another series of CUDA");
SAME(fake_cuda::kOutOfMemory, cudaErrorMemoryAllocation);
SAME(fake_cuda::kInitialization, cudaErrorInitializationError);
SAME(fake_cuda::kUnloading, cudaErrorCudartUnloading);
SAME(fake_cuda::kInsufficientDriver, cudaErrorInsufficientDriver);
SAME(fake_cuda::kDevicesUnavailable, cudaErrorDevicesUnavailable);
SAME(fake_cuda::kNoDevice, cudaErrorNoDevice);
SAME(fake_cuda::kInvalidDevice, cudaErrorInvalidDevice);
SAME(fake_cuda::kEccUncorrectable, cudaErrorECCUncorrectable);
SAME(fake_cuda::kInvalidHandle, cudaErrorInvalidResourceHandle);
SAME(fake_cuda::kIllegalState, cudaErrorIllegalState);
SAME(fake_cuda::kNotReady, cudaErrorNotReady);
SAME(fake_cuda::kIllegalAddress, cudaErrorIllegalAddress);
SAME(fake_cuda::kPeerAlreadyEnabled, cudaErrorPeerAccessAlreadyEnabled);
SAME(fake_cuda::kPeerNotEnabled, cudaErrorPeerAccessNotEnabled);
SAME(fake_cuda::kHostAlreadyRegistered, cudaErrorHostMemoryAlreadyRegistered);
SAME(fake_cuda::kHostNotRegistered, cudaErrorHostMemoryNotRegistered);
SAME(fake_cuda::kLaunchFailure, cudaErrorLaunchFailure);
SAME(fake_cuda::kNotSupported, cudaErrorNotSupported);
SAME(fake_cuda::kCaptureUnsupported, cudaErrorStreamCaptureUnsupported);
SAME(fake_cuda::kUnknown, cudaErrorUnknown);
SAME(fake_cuda::kNonBlocking, cudaStreamNonBlocking);
SAME(fake_cuda::kCaptureActive, cudaStreamCaptureStatusActive);
SAME(fake_cuda::kMemoryHost, cudaMemoryTypeHost);
SAME(fake_cuda::kMemoryDevice, cudaMemoryTypeDevice);
SAME(fake_cuda::kLocationDevice, CU_MEM_LOCATION_TYPE_DEVICE);
SAME(fake_cuda::kPointerDevicePointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER);
SAME(fake_cuda::kPointerDeviceOrdinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(fake_cuda::kVirtualMemorySupported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);

SAME(sizeof(P), sizeof(cudaDeviceProp));
FIELD(kUuid, uuid);
FIELD(kTotalMemory, totalGlobalMem);
FIELD(kSharedPerBlock, sharedMemPerBlock);
FIELD(kRegistersPerBlock, regsPerBlock);
FIELD(kWarp, warpSize);
FIELD(kPitch, memPitch);
FIELD(kThreadsPerBlock, maxThreadsPerBlock);
FIELD(kThreadsDim, maxThreadsDim);
FIELD(kGridSize, maxGridSize);
FIELD(kConstMemory, totalConstMem);
FIELD(kMajor, major);
FIELD(kMinor, minor);
FIELD(kTextureAlignment, textureAlignment);
FIELD(kPitchAlignment, texturePitchAlignment);
FIELD(kProcessors, multiProcessorCount);
FIELD(kIntegrated, integrated);
FIELD(kMapHost, canMapHostMemory);
FIELD(kConcurrentKernels, concurrentKernels);
FIELD(kPciBus, pciBusID);
FIELD(kCopyEngines, asyncEngineCount);
FIELD(kUnifiedAddressing, unifiedAddressing);
FIELD(kBusWidth, memoryBusWidth);
FIELD(kL2, l2CacheSize);
FIELD(kThreadsPerProcessor, maxThreadsPerMultiProcessor);
FIELD(kPriorities, streamPrioritiesSupported);
FIELD(kSharedPerProcessor, sharedMemPerMultiprocessor);
FIELD(kRegistersPerProcessor, regsPerMultiprocessor);
FIELD(kManaged, managedMemory);
FIELD(kPageableAccess, pageableMemoryAccess);
FIELD(kConcurrentManaged, concurrentManagedAccess);
FIELD(kHostPointer, canUseHostPointerForRegisteredMem);
FIELD(kCooperative, cooperativeLaunch);
FIELD(kSharedOptin, sharedMemPerBlockOptin);
FIELD(kHostPageTables, pageableMemoryAccessUsesHostPageTables);
FIELD(kHostAccess, directManagedMemAccessFromHost);
FIELD(kBlocksPerProcessor, maxBlocksPerMultiProcessor);
FIELD(kHostRegister, hostRegisterSupported);
FIELD(kMps, mpsEnabled);

SAME(sizeof(fake_cuda::PointerAttributes), sizeof(cudaPointerAttributes));
SAME(sizeof(fake_cuda::FunctionAttributes), sizeof(cudaFuncAttributes));
SAME(offsetof(fake_cuda::FunctionAttributes, threads_per_block),
     offsetof(cudaFuncAttributes, maxThreadsPerBlock));
SAME(sizeof(fake_cuda::LaunchConfig), sizeof(cudaLaunchConfig_t));
SAME(offsetof(fake_cuda::LaunchConfig, stream), offsetof(cudaLaunchConfig_t, stream));
SAME(sizeof(fake_cuda::AllocationProp), sizeof(CUmemAllocationProp));
SAME(offsetof(fake_cuda::AllocationProp, location_type), offsetof(CUmemAllocationProp, location));

}  // namespace
