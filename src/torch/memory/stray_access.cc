#include "torch/memory/stray_access.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

namespace innkeeper::torch_layer {
namespace {

AddressSpace* space_of_handles = nullptr;
struct sigaction before_ours;

// In a handler: no memory, no lock that is waited for.
void explain(const void* address) {
  const AddressSpace::Range* range = space_of_handles->find_soon(address);
  if (range == nullptr) return;
  const char* const whose = range->owner.load(std::memory_order_acquire) == nullptr
                                ? "a managed tensor that is gone"
                                : "a managed tensor";
  const size_t offset = reinterpret_cast<uintptr_t>(address) - range->begin;
  std::array<char, 512> line;
  const int wanted = snprintf(line.data(), line.size(),
                              "innkeeper: something read or wrote byte %zu at the data pointer of %s "
                              "(address %p). No bytes are there: they "
                              "lie on whichever node has room. Lend them meanwhile:\n"
                              "    with innkeeper.resident(x, write=True) as real: ... real.data_ptr()\n",
                              offset, whose, address);
  const size_t length = std::min(static_cast<size_t>(std::max(wanted, 0)), line.size() - 1);
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), length);
}

void on_trap(int number, siginfo_t* info, void* context) {
  const int kept = errno;
  if (info->si_code > 0) explain(info->si_addr);  // else somebody sent it
  errno = kept;
  if ((before_ours.sa_flags & SA_SIGINFO) != 0) return before_ours.sa_sigaction(number, info, context);
  if (before_ours.sa_handler != SIG_DFL && before_ours.sa_handler != SIG_IGN) {
    return before_ours.sa_handler(number);
  }
  sigaction(number, &before_ours, nullptr);  // the instruction traps again
  if (info->si_code <= 0) raise(number);
}

}  // namespace

void explain_stray_accesses(AddressSpace& space) {
  space_of_handles = &space;
  if (sigaction(SIGSEGV, nullptr, &before_ours) != 0) return;
  struct sigaction ours = before_ours;
  ours.sa_sigaction = &on_trap;
  ours.sa_flags = (before_ours.sa_flags & (SA_NODEFER | SA_RESTART)) | SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &ours, nullptr);
}

}  // namespace innkeeper::torch_layer
