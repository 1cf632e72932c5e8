// Runs a function in a process of its own, so that an abort, trap or hang is a result like any other.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <functional>
#include <string>

#include "base/check.h"

namespace innkeeper::test {

struct Isolated {
  std::string text;   // Return value of the function.
  std::string ended;  // The way in which the process ended; empty if the function returned.
};

// Requires: the calling process has one thread. The function's output is printed.
inline Isolated run_isolated(const std::function<std::string()>& function, unsigned limit_s) {
  int ends[2];
  IK_CHECK(::pipe(ends) == 0);
  std::fflush(nullptr);
  const pid_t child = ::fork();
  IK_CHECK(child >= 0);
  if (child == 0) {
    ::close(ends[0]);
    ::alarm(limit_s);
    const std::string text = function();
    for (size_t done = 0; done < text.size();) {
      const ssize_t now = ::write(ends[1], text.data() + done, text.size() - done);
      if (now <= 0) break;
      done += static_cast<size_t>(now);
    }
    std::fflush(nullptr);
    ::_exit(0);
  }
  ::close(ends[1]);
  Isolated result;
  char buffer[4096];
  for (;;) {
    const ssize_t now = ::read(ends[0], buffer, sizeof buffer);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) break;
    result.text.append(buffer, static_cast<size_t>(now));
  }
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) {
    result.ended = WTERMSIG(status) == SIGALRM ? "no end after " + std::to_string(limit_s) + " s: a deadlock?"
                                               : "signal " + std::to_string(WTERMSIG(status));
  } else if (WEXITSTATUS(status) != 0) {
    result.ended = "exit status " + std::to_string(WEXITSTATUS(status));
  }
  return result;
}

}  // namespace innkeeper::test
