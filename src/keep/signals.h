// This process's signals, read instead of handled, and their original handling for the command.
#pragma once

#include <signal.h>
#include <sys/signalfd.h>

namespace innkeeper::keep {

// The signal handling at the start of this program, which the command must get.
class Inherited {
 public:
  // Blocks all signals from now on, and lets children be waited for.
  Inherited();
  void restore() const;

 private:
  sigset_t mask_{};
  struct sigaction children_ {};
};

// The signals of the process that creates it, once they are blocked.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  int fd() const { return fd_; }
  // Reads the next signal, if there is one.
  bool next(signalfd_siginfo& about) const;

 private:
  const int fd_;
};

// Gives `signal` its default effect on this process: it ends or stops.
// Returns when the process goes on, or at once if the signal has no default effect.
void suffer(int signal);

}  // namespace innkeeper::keep
