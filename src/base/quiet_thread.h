// A thread of ours in a user's program.
#pragma once

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace innkeeper {

// Starts a thread that receives none of the program's signals, which are for the program's threads. Throws
// std::system_error if none can be created.
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
