// The part of the driver (libcuda.so.1) that PyTorch calls: contexts, of which there is one, and the virtual
// memory of expandable segments. Any other function answers "not supported".
#include <dlfcn.h>

#include <cstring>

#include "runtime/call.h"
#include "runtime/memory.h"
#include "runtime/report.h"
#include "runtime/settings.h"
#include "runtime/stream.h"

namespace fake_cuda {

extern "C" {

const char* cudaGetErrorString(Error error);
Error cudaDeviceGetAttribute(int* value, int which, int index);

Error cuInit(unsigned) { return settings().gpus == 0 ? kNoDevice : kSuccess; }
Error cuDriverGetVersion(int* version) {
  *version = settings().driver;
  return kSuccess;
}
Error cuDeviceGet(int* device, int index) {
  *device = index;
  return is_gpu(index) ? kSuccess : kInvalidDevice;
}
Error cuDeviceGetAttribute(int* value, int which, int index) {
  return cudaDeviceGetAttribute(value, which, index);
}
Error cuGetErrorString(Error error, const char** text) {
  *text = cudaGetErrorString(error);
  return kSuccess;
}
static void* the_context() {
  static int context;
  return &context;
}
Error cuCtxGetCurrent(void** context) {
  *context = the_context();
  return kSuccess;
}
Error cuCtxSetCurrent(void*) { return kSuccess; }
Error cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return kSuccess;
}
Error cuDevicePrimaryCtxRetain(void** context, int) { return cuCtxGetCurrent(context); }

Error cuMemGetAllocationGranularity(size_t* size, const AllocationProp*, int) {
  *size = kPage;
  return kSuccess;
}
Error cuMemAddressReserve(unsigned long long* at, size_t size, size_t, unsigned long long,
                          unsigned long long) {
  return driver_call("cuMemAddressReserve", Needs::driver, [&] {
    *at = reserve_addresses(size);
    return kSuccess;
  });
}
Error cuMemAddressFree(unsigned long long, size_t) { return kSuccess; }
Error cuMemCreate(unsigned long long* handle, size_t size, const AllocationProp* prop, unsigned long long) {
  return driver_call("cuMemCreate", Needs::driver, [&] {
    run_some();
    if (prop->location_type != kLocationDevice) return kNotSupported;
    if (!is_gpu(prop->location_id)) return kInvalidDevice;
    if (Error broken = gpu(prop->location_id).broken) return broken;
    uint64_t made = 0;
    const Error error = create_physical(prop->location_id, size, &made);
    *handle = made;
    return error;
  });
}
Error cuMemRelease(unsigned long long handle) {
  return driver_call("cuMemRelease", Needs::driver, [&] { return release_physical(handle); });
}
Error cuMemMap(unsigned long long at, size_t size, size_t offset, unsigned long long handle,
               unsigned long long) {
  return driver_call("cuMemMap", Needs::driver,
                     [&] { return offset == 0 ? map_physical(at, size, handle) : kNotSupported; });
}
Error cuMemSetAccess(unsigned long long, size_t, const void*, size_t) {
  return driver_call("cuMemSetAccess", Needs::driver, [] { return kSuccess; });
}
Error cuMemUnmap(unsigned long long at, size_t size) {
  return driver_call("cuMemUnmap", Needs::driver, [&] {
    // The real function does not wait: a program that unmaps memory in use by work gets a fault on the GPU.
    return unmap_physical(at, size);
  });
}
Error cuPointerGetAttribute(void* value, int which, unsigned long long data) {
  return driver_call("cuPointerGetAttribute", Needs::driver, [&] {
    if (which != kPointerDeviceOrdinal && which != kPointerDevicePointer) return kNotSupported;
    const int owner = gpu_of(reinterpret_cast<const void*>(data));
    if (owner < 0) return kInvalidValue;
    if (which == kPointerDevicePointer)
      memcpy(value, &data, sizeof data);
    else
      memcpy(value, &owner, sizeof owner);
    return kSuccess;
  });
}

// PyTorch from 2.14 on reads the driver's log of errors where there is one. This driver logs nothing.
Error cuLogsRegisterCallback(void*, void*, void** handle) {
  static char log = 0;
  if (handle != nullptr) *handle = &log;
  return kSuccess;
}
Error cuLogsUnregisterCallback(void*) { return kSuccess; }

Error fake_cuda_missing() {
  say("a function of the driver that is not here was called");
  return kNotSupported;
}

Error cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long,
                                       int* result) {
  static void* const self = [] {
    Dl_info info;
    dladdr(reinterpret_cast<void*>(&cuMemCreate), &info);
    return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }();
  *function = self == nullptr ? nullptr : dlsym(self, symbol);
  if (*function == nullptr) *function = reinterpret_cast<void*>(&fake_cuda_missing);
  if (result != nullptr) *result = 0;
  return kSuccess;
}

}  // extern "C"

}  // namespace fake_cuda
