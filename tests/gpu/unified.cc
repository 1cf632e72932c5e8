// Unified memory as PyTorch's CUDA allocator, for test_oversubscription.py: what is freed waits by its size
// and is handed out again, as asking the driver each time would measure the driver. One stream is assumed.
#include <cuda_runtime_api.h>
#include <sys/types.h>

#include <map>
#include <mutex>

namespace {

std::mutex mutex;
std::multimap<ssize_t, void*> waiting;

}  // namespace

extern "C" {

void* unified_alloc(ssize_t size, int /*device*/, cudaStream_t /*stream*/) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (const auto found = waiting.find(size); found != waiting.end()) {
    void* data = found->second;
    waiting.erase(found);
    return data;
  }
  void* data = nullptr;
  return size != 0 && cudaMallocManaged(&data, static_cast<size_t>(size), cudaMemAttachGlobal) == cudaSuccess
             ? data
             : nullptr;
}

void unified_free(void* data, ssize_t size, int /*device*/, cudaStream_t /*stream*/) {
  if (data == nullptr) return;
  const std::lock_guard<std::mutex> lock(mutex);
  waiting.emplace(size, data);
}

// Takes what is free on the card but for `left` bytes, for good. Returns CUDA's error.
int unified_fill(size_t left) {
  size_t free = 0;
  size_t total = 0;
  const cudaError_t asked = cudaMemGetInfo(&free, &total);
  if (asked != cudaSuccess || free <= left) return asked;
  void* ballast = nullptr;
  return cudaMalloc(&ballast, free - left);
}
}
