// A thread of ours in a user's program.
#pragma once

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace innkeeper {

// The program's signals are for the program's threads: none is delivered on this one. Throws
// std::system_error where there is none to be had.
template <class Body>
std::thread quiet_thread(Body body) {
  struct Blocked {
    Blocked() {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    ~Blocked() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    sigset_t before{};
  };
  const Blocked blocked;
  return std::thread(std::move(body));
}

}  // namespace innkeeper
