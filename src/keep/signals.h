// This process's signals, read instead of handled, and what the command gets in their place.
#pragma once

#include <signal.h>
#include <sys/signalfd.h>

namespace innkeeper::keep {

// How signals were handled when this program was started, which is how the command is to find them.
class Inherited {
 public:
  // From now on all are blocked, and children are waited for.
  Inherited();
  void restore() const;

 private:
  sigset_t mask_{};
  struct sigaction children_ {};
};

// Those of the process that makes it, once they are blocked.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  int fd() const { return fd_; }
  // The next, if there is one.
  bool next(signalfd_siginfo& about) const;

 private:
  const int fd_;
};

// This process does what `signal` does to one that neither handles nor blocks it: it ends or stops. Returns
// when it goes on, or at once where such a signal does nothing.
void suffer(int signal);

}  // namespace innkeeper::keep
