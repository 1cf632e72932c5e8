#include "runtime/host_memory.h"

#include <cstdint>
#include <cstdlib>
#include <map>

#include "runtime/report.h"
#include "runtime/stream.h"

namespace fake_cuda {
namespace {

struct Locked {
  size_t size;
  bool ours;  // Allocated by cudaHostAlloc.
};
std::map<uintptr_t, Locked>& locked() {
  static auto& it = *new std::map<uintptr_t, Locked>;
  return it;
}

using Found = std::map<uintptr_t, Locked>::iterator;
Found find(const void* data) {
  const auto at = reinterpret_cast<uintptr_t>(data);
  Found found = locked().upper_bound(at);
  if (found == locked().begin()) return locked().end();
  --found;
  return at < found->first + found->second.size ? found : locked().end();
}

// Checks that no copy may still touch the memory. The real driver waits, and so does the fake, but a program
// that counts on it counts on luck: a copy that has not run by now would read or write another owner's
// memory.
void goes(const void* data, size_t size, const char* what) {
  if (const HostRange* pending = pending_host(data, size)) {
    violation("%s(%p + %zu), which a copy that has not run touches (%p + %zu)", what, data, size,
              pending->data, pending->size);
  }
  run_all();
}

Error forget(void* data, bool ours, const char* what) {
  const auto found = locked().find(reinterpret_cast<uintptr_t>(data));
  if (found == locked().end() || found->second.ours != ours) return ours ? kInvalidValue : kHostNotRegistered;
  goes(data, found->second.size, what);
  locked().erase(reinterpret_cast<uintptr_t>(data));
  return kSuccess;
}

}  // namespace

Error lock_pages(void* data, size_t size) {
  const auto at = reinterpret_cast<uintptr_t>(data);
  if (data == nullptr || size == 0) return kInvalidValue;
  const auto next = locked().lower_bound(at);
  if (is_locked(data) || (next != locked().end() && next->first < at + size)) return kHostAlreadyRegistered;
  locked()[at] = {size, false};
  return kSuccess;
}

Error unlock_pages(void* data) { return forget(data, false, "cudaHostUnregister"); }

Error allocate_locked(void** data, size_t size) {
  constexpr size_t kAlign = 4096;
  *data = aligned_alloc(kAlign, (size + kAlign - 1) / kAlign * kAlign);
  if (*data == nullptr) return kOutOfMemory;
  locked()[reinterpret_cast<uintptr_t>(*data)] = {size, true};
  return kSuccess;
}

Error free_locked(void* data) {
  if (data == nullptr) return kSuccess;
  const Error error = forget(data, true, "cudaFreeHost");
  if (error == kSuccess) free(data);
  return error;
}

bool is_locked(const void* data) { return find(data) != locked().end(); }

bool lies_well(const void* data, size_t size) {
  const auto found = find(data);
  if (found != locked().end())
    return reinterpret_cast<uintptr_t>(data) + size <= found->first + found->second.size;
  const auto next = locked().lower_bound(reinterpret_cast<uintptr_t>(data));
  return next == locked().end() || next->first >= reinterpret_cast<uintptr_t>(data) + size;
}

size_t locked_bytes() {
  size_t all = 0;
  for (const auto& [at, range] : locked()) all += range.size;
  return all;
}

}  // namespace fake_cuda
