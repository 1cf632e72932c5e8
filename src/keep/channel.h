// What the process that waits (attend.h) and the keeper (keeper.h) tell each other: whole messages, in order.
#pragma once

#include <sys/socket.h>

namespace innkeeper::keep {

enum class Event : int {
  forked,     // by the command's own process, whose number `value` is
  began,      // it is the command's by now
  failed,     // it could not begin: errno
  stopped,    // it was, by this signal
  continued,  // it goes on
  ended,      // it has: the status of wait()
  lost,       // a logout removed the lease, and it could not be restored yet
  released,   // another process released the lease, or it has expired
};

// By the keeper, and first by the process that is to be the command.
struct Report {
  Event event = Event::began;
  int value = 0;
  bool left = false;  // of `ended`: something of what it started goes on, and the keeper with it
};

// To the keeper: a signal that may be meant for the command.
struct Passed {
  int signal = 0;
  int code = 0;   // si_code of siginfo_t
  int value = 0;  // of sigqueue()
};

// False: the other end is gone.
template <typename Message>
bool tell(int channel, const Message& message) {
  return send(channel, &message, sizeof message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof message);
}

// The next message, if there is one. `gone` becomes true where the other end is, and nothing is left to read.
template <typename Message>
bool hear(int channel, Message& message, bool& gone) {
  const ssize_t length = recv(channel, &message, sizeof message, MSG_DONTWAIT);
  if (length == 0) gone = true;
  return length == static_cast<ssize_t>(sizeof message);
}

}  // namespace innkeeper::keep
