// Child processes of a test, made by fork().
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

namespace innkeeper::test {

// Forks a child that runs `body` and ends with its result as exit status. Returns the child's process number.
inline pid_t in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  return child;
}

// Waits for the child's end. Returns its exit status, or 128 plus the signal that killed it. Blocks.
inline int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Whether `condition` is true in a child of its own. Blocks until the child has ended.
inline bool holds_in_child(const std::function<bool()>& condition) {
  return wait_for(in_child([&] { return condition() ? 0 : 1; })) == 0;
}

}  // namespace innkeeper::test
