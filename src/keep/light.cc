#include "keep/light.h"

#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "base/descriptors.h"

namespace innkeeper::keep {
namespace {

// Drops segments that neither the program nor the loader writes: their pages equal the file's.
int drop_segments(dl_phdr_info* about, size_t /*size*/, void* /*unused*/) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  for (int i = 0; i < about->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = about->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) != 0) continue;
    const uintptr_t begin = (about->dlpi_addr + segment.p_vaddr) / page * page;
    const uintptr_t end = about->dlpi_addr + segment.p_vaddr + segment.p_filesz;
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  }
  return 0;
}

}  // namespace

void let_go(const std::vector<int>& kept) {
  for (const int fd : open_descriptors_but(kept)) close(fd);
  if (chdir("/") != 0) return;  // On failure it stays in its directory.
}

void drop_code() {
  malloc_trim(0);
  dl_iterate_phdr(drop_segments, nullptr);
}

}  // namespace innkeeper::keep
