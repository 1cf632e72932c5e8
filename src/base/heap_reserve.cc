#include "base/heap_reserve.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <new>
#include <string>

#include "base/thread_annotations.h"
#include "base/types.h"

namespace innkeeper {

constinit thread_local int NeedsHeap::depth = 0;

namespace {

// Parts are mapped, not taken from the heap: every thread's heap can grow by the address space that a part
// gives back. The heap grows by some 132 KiB at a time.
constexpr size_t kPart = size_t{256} << 10;
constexpr size_t kParts = kHeapReserve / kPart;

struct HeapReserve {
  std::array<std::atomic<void*>, kParts> parts{};
  std::atomic<size_t> missing{0};
  std::atomic<bool> installed{false};
  Mutex refilling;
  std::new_handler before = nullptr;
};

constinit HeapReserve reserve;  // Constant-initialized, because `new` may fail before main().

// Frees one part. False: no part is left.
bool give() {
  for (auto& part : reserve.parts) {
    void* const memory = part.exchange(nullptr);
    if (memory == nullptr) continue;
    reserve.missing.fetch_add(1);
    munmap(memory, kPart);
    return true;
  }
  return false;
}

// Allocates the missing parts. False: a part is still missing.
bool refill() {
  MutexLock lock(reserve.refilling);
  for (auto& part : reserve.parts) {
    if (part.load() != nullptr) continue;
    void* const memory = mmap(nullptr, kPart, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return false;
    reserve.missing.fetch_sub(1);
    part.store(memory);
  }
  return true;
}

}  // namespace

// Called by `new`, which tries again if this returns.
void on_failed_new() {
  if (give()) return;
  if (NeedsHeap::depth > 0) {
    constexpr char kWhy[] =
        "innkeeper: out of memory for the engine's own books in the middle of a move: "
        "the process may have no more (ulimit -v), and its reserve of 4 MiB is used up\n";
    (void)!write(STDERR_FILENO, kWhy, sizeof kWhy - 1);
    std::abort();
  }
  if (reserve.before == nullptr) throw std::bad_alloc();
  reserve.before();
}

void install_heap_reserve() {
  if (reserve.installed.exchange(true)) return;
  reserve.missing.store(kParts);
  (void)refill();
  reserve.before = std::set_new_handler(&on_failed_new);
}

Status heap_reserve_ready() {
  if (reserve.missing.load(std::memory_order_relaxed) == 0 || refill()) [[likely]]
    return {};
  const auto left = static_cast<int64_t>((kParts - reserve.missing.load()) * kPart);
  try {
    return Status(Code::out_of_memory,
                  "the process may have no more memory (ulimit -v): " + to_string(Bytes(left)) +
                      " are left of the " + to_string(Bytes(kHeapReserve)) +
                      " that are kept for the engine's own books");
  } catch (const std::bad_alloc&) {
    return Status(Code::out_of_memory, "out of memory");  // Short enough to need no allocation.
  }
}

}  // namespace innkeeper
