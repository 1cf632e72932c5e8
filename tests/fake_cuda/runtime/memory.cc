#include "runtime/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <unordered_map>

#include "runtime/machine.h"
#include "runtime/report.h"
#include "runtime/stream.h"

namespace fake_cuda {
namespace {

constexpr size_t kWindow = size_t{1} << 40;

char* map_nothing(size_t size) {
  void* data = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    say("no address space for the GPUs");
    abort();
  }
  return static_cast<char*>(data);
}

struct Mapping {
  size_t size;
  int gpu;
  uint64_t handle;  // 0: of cudaMalloc
};
struct Physical {
  size_t size;
  int gpu;
  int users;
};

struct Memory {
  char* addresses = nullptr;
  char* bytes = nullptr;
  size_t given_out = 0;
  std::map<uintptr_t, Mapping> mapped;
  std::unordered_map<uint64_t, Physical> physical;
  uint64_t next_handle = 1;
};
Memory& memory() {
  static auto& it = *new Memory;
  return it;
}

char* shadow(uintptr_t at) { return memory().bytes + (at - reinterpret_cast<uintptr_t>(memory().addresses)); }

void commit(uintptr_t at, size_t size) {
  if (mprotect(shadow(at), size, PROT_READ | PROT_WRITE) != 0) {
    say("the host has no memory for a GPU's");
    abort();
  }
  memset(shadow(at), kPoison, size);
}

void uncommit(uintptr_t at, size_t size) {
  mmap(shadow(at), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

using Found = std::map<uintptr_t, Mapping>::iterator;
Found find(uintptr_t at) {
  Found found = memory().mapped.upper_bound(at);
  if (found == memory().mapped.begin()) return memory().mapped.end();
  --found;
  return at < found->first + found->second.size ? found : memory().mapped.end();
}

Error take(int index, size_t size) {
  Gpu& from = gpu(index);
  if (size > from.left()) return kOutOfMemory;
  from.used += size;
  return kSuccess;
}

}  // namespace

bool is_device_address(const void* data) {
  const char* base = memory().addresses;
  return base != nullptr && data >= base && data < base + kWindow;
}

uintptr_t reserve_addresses(size_t size) {
  Memory& m = memory();
  if (m.addresses == nullptr) {
    const auto base = reinterpret_cast<uintptr_t>(map_nothing(kWindow + kPage));
    m.addresses = reinterpret_cast<char*>(round_to_page(base));
    m.bytes = map_nothing(kWindow);
  }
  const uintptr_t at = reinterpret_cast<uintptr_t>(m.addresses) + m.given_out;
  m.given_out += round_to_page(size) + kPage;  // a gap behind each
  if (m.given_out > kWindow) {
    say("out of device addresses");
    abort();
  }
  return at;
}

Error allocate(int index, size_t size, void** data) {
  *data = nullptr;
  if (size == 0) return kSuccess;
  size = round_to_page(size);
  if (Error error = take(index, size)) return error;
  const uintptr_t at = reserve_addresses(size);
  commit(at, size);
  memory().mapped[at] = {size, index, 0};
  *data = reinterpret_cast<void*>(at);
  return kSuccess;
}

Error release(void* data) {
  if (data == nullptr) return kSuccess;
  const auto found = memory().mapped.find(reinterpret_cast<uintptr_t>(data));
  if (found == memory().mapped.end() || found->second.handle != 0) {
    violation("cudaFree(%p), which no cudaMalloc gave", data);
    return kInvalidValue;
  }
  const Mapping mapping = found->second;
  run_gpu(mapping.gpu);  // the real one waits, too
  gpu(mapping.gpu).used -= mapping.size;
  uncommit(reinterpret_cast<uintptr_t>(data), mapping.size);
  memory().mapped.erase(reinterpret_cast<uintptr_t>(data));
  return kSuccess;
}

Error create_physical(int index, size_t size, uint64_t* handle) {
  if (!is_gpu(index) || size == 0 || size % kPage != 0) return kInvalidValue;
  if (Error error = take(index, size)) return error;
  *handle = memory().next_handle++;
  memory().physical[*handle] = {size, index, 1};
  return kSuccess;
}

Error release_physical(uint64_t handle) {
  const auto found = memory().physical.find(handle);
  if (found == memory().physical.end()) {
    violation("cuMemRelease of a handle that is none");
    return kInvalidValue;
  }
  if (--found->second.users == 0) {
    gpu(found->second.gpu).used -= found->second.size;
    memory().physical.erase(found);
  }
  return kSuccess;
}

Error map_physical(uintptr_t at, size_t size, uint64_t handle) {
  const auto found = memory().physical.find(handle);
  if (found == memory().physical.end() || size != found->second.size || find(at) != memory().mapped.end()) {
    return kInvalidValue;
  }
  ++found->second.users;
  commit(at, size);
  memory().mapped[at] = {size, found->second.gpu, handle};
  return kSuccess;
}

Error unmap_physical(uintptr_t at, size_t size) {
  for (const uintptr_t end = at + size; at < end;) {
    const auto found = memory().mapped.find(at);
    if (found == memory().mapped.end() || found->second.handle == 0) return kInvalidValue;
    const Mapping mapping = found->second;
    uncommit(at, mapping.size);
    memory().mapped.erase(found);
    release_physical(mapping.handle);
    at += mapping.size;
  }
  return kSuccess;
}

int gpu_of(const void* data) {
  const auto found = find(reinterpret_cast<uintptr_t>(data));
  return found == memory().mapped.end() ? -1 : found->second.gpu;
}

char* bytes_of(const void* data, size_t size, int index, const char* what) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  for (uintptr_t at = begin; at < begin + size;) {
    const auto found = find(at);
    if (found == memory().mapped.end()) {
      violation("%s touches %p + %zu, where no device memory is (any more)", what, data, size);
      if (is_gpu(index)) gpu(index).broken = kIllegalAddress;
      return nullptr;
    }
    const int there = found->second.gpu;
    if (is_gpu(index) && !gpu(index).peers[static_cast<size_t>(there)]) {
      violation("%s of GPU %d touches memory of GPU %d, which it does not reach", what, index, there);
      gpu(index).broken = kIllegalAddress;
      return nullptr;
    }
    at = found->first + found->second.size;
  }
  return shadow(begin);
}

void poison_gpu(int index) {
  for (const auto& [at, mapping] : memory().mapped) {
    if (mapping.gpu == index) memset(shadow(at), kPoison, mapping.size);
  }
}

}  // namespace fake_cuda
