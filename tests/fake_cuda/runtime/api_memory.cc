// The C interface: memory and copies.
#include "runtime/call.h"
#include "runtime/copy.h"
#include "runtime/host_memory.h"
#include "runtime/memory.h"
#include "runtime/stream.h"

namespace fake_cuda {
namespace {

Error copy_on(StreamHandle handle, void* to, const void* from, size_t size, bool wait) {
  Stream* stream = stream_of(handle);
  if (stream == nullptr) return kInvalidHandle;
  if (Error broken = gpu(stream->gpu).broken) return broken;
  return copy(to, from, size, *stream, wait);
}

Error fill_on(StreamHandle handle, void* data, int value, size_t size) {
  Stream* stream = stream_of(handle);
  if (stream == nullptr) return kInvalidHandle;
  if (Error broken = gpu(stream->gpu).broken) return broken;
  return fill(data, value, size, *stream);
}

}  // namespace

extern "C" {

Error cudaMalloc(void** data, size_t size) {
  return call("cudaMalloc", Needs::gpu, [&] {
    run_some();
    return allocate(current_gpu(), size, data);
  });
}
Error cudaFree(void* data) {
  return call("cudaFree", Needs::gpu, [&] { return release(data); });
}
Error cudaMemGetInfo(size_t* left, size_t* total) {
  return call("cudaMemGetInfo", Needs::gpu, [&] {
    *total = gpu(current_gpu()).total;
    *left = gpu(current_gpu()).left();
    return kSuccess;
  });
}
Error cudaHostAlloc(void** data, size_t size, unsigned) {
  return call("cudaHostAlloc", Needs::gpu, [&] { return allocate_locked(data, size); });
}
Error cudaFreeHost(void* data) {
  return call("cudaFreeHost", Needs::gpu, [&] { return free_locked(data); });
}
Error cudaHostRegister(void* data, size_t size, unsigned) {
  return call("cudaHostRegister", Needs::gpu, [&] { return lock_pages(data, size); });
}
Error cudaHostUnregister(void* data) {
  return call("cudaHostUnregister", Needs::driver, [&] { return unlock_pages(data); });
}
Error cudaPointerGetAttributes(PointerAttributes* attributes, const void* data) {
  return call("cudaPointerGetAttributes", Needs::driver, [&] {
    auto* address = const_cast<void*>(data);
    *attributes = {kMemoryUnregistered, -1, nullptr, address, {}};
    const int owner = gpu_of(data);
    if (owner >= 0) *attributes = {kMemoryDevice, owner, address, nullptr, {}};
    if (is_locked(data)) *attributes = {kMemoryHost, current_gpu(), address, address, {}};
    return kSuccess;
  });
}

Error cudaMemcpyAsync(void* to, const void* from, size_t size, int, StreamHandle stream) {
  return call("cudaMemcpyAsync", Needs::driver, [&] { return copy_on(stream, to, from, size, false); });
}
Error cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t size, StreamHandle stream) {
  return call("cudaMemcpyPeerAsync", Needs::driver, [&] { return copy_on(stream, to, from, size, false); });
}
Error cudaMemcpy(void* to, const void* from, size_t size, int) {
  return call("cudaMemcpy", Needs::gpu, [&] { return copy_on(nullptr, to, from, size, true); });
}
Error cudaMemsetAsync(void* data, int value, size_t size, StreamHandle stream) {
  return call("cudaMemsetAsync", Needs::driver, [&] { return fill_on(stream, data, value, size); });
}
Error cudaMemset(void* data, int value, size_t size) {
  return call("cudaMemset", Needs::gpu, [&] { return fill_on(nullptr, data, value, size); });
}

}  // extern "C"

}  // namespace fake_cuda
