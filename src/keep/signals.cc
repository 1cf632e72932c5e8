#include "keep/signals.h"

#include <unistd.h>

namespace innkeeper::keep {

Inherited::Inherited() {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &mask_);
  struct sigaction usual {};
  // While SIGCHLD is ignored, the kernel reaps children and discards their exit status.
  usual.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &usual, &children_);
}

void Inherited::restore() const {
  sigaction(SIGCHLD, &children_, nullptr);
  sigprocmask(SIG_SETMASK, &mask_, nullptr);
}

Signals::Signals()
    : fd_([] {
        sigset_t all;
        sigfillset(&all);
        return signalfd(-1, &all, SFD_NONBLOCK | SFD_CLOEXEC);
      }()) {}

Signals::~Signals() {
  if (fd_ >= 0) close(fd_);
}

bool Signals::next(signalfd_siginfo& about) const {
  return read(fd_, &about, sizeof about) == static_cast<ssize_t>(sizeof about);
}

void suffer(int signal) {
  struct sigaction usual {
  }, before{};
  usual.sa_handler = SIG_DFL;
  sigaction(signal, &usual, &before);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  kill(getpid(), signal);
  sigprocmask(SIG_UNBLOCK, &one, nullptr);
  sigprocmask(SIG_BLOCK, &one, nullptr);
  sigaction(signal, &before, nullptr);
}

}  // namespace innkeeper::keep
