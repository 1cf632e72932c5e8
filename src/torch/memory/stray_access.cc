#include "torch/memory/stray_access.h"

#include <poll.h>
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
constexpr int kPatienceMs = 200;

// Runs in a signal handler: it allocates no memory and waits for no lock without a limit.
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
                              "(address %p). No bytes are there: they lie on whichever node has room. "
                              "Lend them meanwhile:\n"
                              "    with innkeeper.resident(x, write=True) as real: ... real.data_ptr()\n",
                              offset, whose, address);
  const size_t length = std::min(static_cast<size_t>(std::max(wanted, 0)), line.size() - 1);
  pollfd error{STDERR_FILENO, POLLOUT, 0};  // If the pipe has no reader, the process must end all the same.
  if (poll(&error, 1, kPatienceMs) != 1) return;
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), length);
}

bool calls_a_function(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 ||
         (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

void on_trap(int number, siginfo_t* info, void* context) {
  const int kept = errno;
  const bool sent = info->si_code <= 0;
  if (!sent) explain(info->si_addr);
  errno = kept;
  const struct sigaction before = before_ours;
  if (!calls_a_function(before)) {
    if (sent && before.sa_handler == SIG_IGN) return;
    struct sigaction end = before;
    end.sa_handler = SIG_DFL;
    sigaction(number, &end, nullptr);  // The instruction traps again.
    if (sent) raise(number);
    return;
  }
  if ((before.sa_flags & SA_RESETHAND) != 0) {  // The former handler asked to be called only once.
    before_ours.sa_handler = SIG_DFL;
    before_ours.sa_flags &= ~SA_SIGINFO;
  }
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(number, info, context);
  } else {
    before.sa_handler(number);
  }
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
