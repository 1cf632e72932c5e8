#include "queue/program.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "lease/live_file.h"
#include "lease/open_file.h"
#include "lease/process.h"
#include "queue/life.h"

extern char** environ;

namespace innkeeper::queue {
namespace {

// Returns whether this process descends from the supervisor of one of the directory's jobs.
bool inside_a_job(const QueueDirectory& directory) {
  const std::vector<lease::ProcessKey> line = lease::process_line(getpid());
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory.life_directory(), error)) {
    const Life life = look(entry.path());
    if (life.alive && life.began && std::find(line.begin(), line.end(), life.began->supervisor) != line.end())
      return true;
  }
  return false;
}

}  // namespace

bool runner_alive(const QueueDirectory& directory) {
  const lease::OpenFile file(
      [&] { return open(directory.runner_lock().c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC); });
  return file.valid() && lease::write_locked(file.fd()).value_or(false);
}

Status ensure_runner(const QueueDirectory& directory, const Program& program) {
  if (runner_alive(directory) || inside_a_job(directory)) return Status::okay();
  std::vector<std::string> words = program.words;
  if (words.empty()) {
    const char* named = std::getenv("INNKEEPER_PROGRAM");
    words = {named != nullptr && *named != '\0' ? named : "innkeeper", "queue", "runner"};
  }
  words.push_back(directory.path());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  // The runner inherits neither the caller's signal mask, nor its ignored signals, nor its terminal.
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_t files;
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_init(&files);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
  for (int fd = 0; fd < 3; ++fd) posix_spawn_file_actions_addopen(&files, fd, "/dev/null", O_RDWR, 0);
  pid_t child = -1;
  const int error = posix_spawnp(&child, arguments[0], &files, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0)
    return Status(Code::unavailable, "no runner can be started: " + words[0] + ": " + std::strerror(error) +
                                         " (INNKEEPER_PROGRAM names the innkeeper program)");
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return Status::okay();  // ECHILD: the caller ignores its children.
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return Status::okay();
  std::ifstream log(directory.runner_log());
  std::string line, last;
  while (std::getline(log, line)) last = line;
  return Status(Code::unavailable, "the runner could not be started: " + last);
}

void ensure_runner_outside(const QueueDirectory& directory, const Program& program) {
  if (runner_alive(directory)) return;
  // The child is a child of our parent, so that it is not below us and its orphans do not come to
  // us. No process needs to wait for it: the parent is either a runner, which ignores its
  // children, or a reaper of orphans.
  const long child = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  if (child != 0) return;
  (void)ensure_runner(directory, program);
  _exit(0);
}

}  // namespace innkeeper::queue
