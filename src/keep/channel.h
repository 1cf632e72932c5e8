// Messages between the waiting process (attend.h) and the keeper (keeper.h): whole messages, in order.
#pragma once

#include <sys/socket.h>

namespace innkeeper::keep {

enum class Event : int {
  forked,     // Sent by the command's own process; `value`: its number.
  began,      // The process has become the command.
  failed,     // The command could not begin; `value`: errno.
  stopped,    // The command was stopped; `value`: the signal.
  continued,  // The command goes on.
  ended,      // The command has ended; `value`: the status of wait().
  lost,       // A logout removed the lease, and it could not be restored yet.
  released,   // Another process released the lease, or it has expired.
};

// Sent by the keeper, and first by the process that becomes the command.
struct Report {
  Event event = Event::began;
  int value = 0;
  bool left = false;  // For `ended`, true: the command's descendants go on, and the keeper with them.
};

// Sent to the keeper: a signal that may be meant for the command.
struct Passed {
  int signal = 0;
  int code = 0;   // si_code of siginfo_t.
  int value = 0;  // Value of sigqueue().
};

// Sends a message. Returns false if the other end is gone.
template <typename Message>
bool tell(int channel, const Message& message) {
  return send(channel, &message, sizeof message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof message);
}

// Reads the next message, if there is one. `gone` becomes true if the other end is gone and no
// message is left.
template <typename Message>
bool hear(int channel, Message& message, bool& gone) {
  const ssize_t length = recv(channel, &message, sizeof message, MSG_DONTWAIT);
  if (length == 0) gone = true;
  return length == static_cast<ssize_t>(sizeof message);
}

}  // namespace innkeeper::keep
