#include "device/mapping.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <string>

#include "base/check.h"
#include "base/thread_annotations.h"

namespace innkeeper {
namespace {

// All blank mappings: a copy gets an address alone and must find out whether it is blank.
class BlankMappings {
 public:
  void add(void* data, int64_t size) IK_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    sizes_[reinterpret_cast<uintptr_t>(data)] = size;
  }
  void remove(void* data) IK_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    sizes_.erase(reinterpret_cast<uintptr_t>(data));
  }
  bool contain(const void* data) IK_EXCLUDES(mutex_) {
    const auto address = reinterpret_cast<uintptr_t>(data);
    MutexLock lock(mutex_);
    const auto after = sizes_.upper_bound(address);
    if (after == sizes_.begin()) return false;
    const auto& [start, size] = *std::prev(after);
    return address - start < static_cast<uintptr_t>(size);
  }

 private:
  Mutex mutex_;
  std::map<uintptr_t, int64_t> sizes_ IK_GUARDED_BY(mutex_);
};

BlankMappings& blank_mappings() {
  // Leaked, because pages may be unmapped after static objects are destroyed.
  static auto& it = *new BlankMappings;
  return it;
}

}  // namespace

Result<void*> map_pages(int64_t size, Pages pages) {
  const bool blank = pages == Pages::blank;
  const int64_t spare = pages == Pages::huge ? kHugePage : 0;
  IK_CHECK(size > 0 && size % kPage == 0, "pages come whole");
  const int access = blank ? PROT_READ : PROT_READ | PROT_WRITE;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (blank ? MAP_NORESERVE : 0);
  void* mapped = ::mmap(nullptr, static_cast<size_t>(size + spare), access, flags, -1, 0);
  if (mapped == MAP_FAILED) {
    return Status(Code::out_of_memory,
                  "the system refused " + std::to_string(size) + " bytes: " + std::strerror(errno));
  }
  if (blank) blank_mappings().add(mapped, size);
  if (spare == 0) return mapped;
  const auto begin = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t before = -begin % static_cast<uintptr_t>(kHugePage);
  auto* const data = static_cast<std::byte*>(mapped) + before;
  if (before != 0) ::munmap(mapped, before);
  if (static_cast<int64_t>(before) != spare) ::munmap(data + size, static_cast<size_t>(spare) - before);
  // A system without huge pages uses ordinary ones.
  ::madvise(data, static_cast<size_t>(size), MADV_HUGEPAGE);
  return data;
}

void unmap_pages(void* data, int64_t size, Pages pages) {
  if (pages == Pages::blank) blank_mappings().remove(data);
  ::munmap(data, static_cast<size_t>(size));
}

bool is_blank(const void* data) { return blank_mappings().contain(data); }

}  // namespace innkeeper
