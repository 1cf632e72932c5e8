// Runs the user's notification command when a job has ended for good.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>

#include "base/log.h"
#include "queue/environment.h"
#include "queue/scheduler.h"

namespace innkeeper::queue {

// Notifies at most once: the runner records the end before, so a runner that is killed here never sends the
// notification. The command's output is dropped, and the runner does not wait for it.
void Scheduler::notify(const Job& job) const {
  std::vector<std::string> environment = job.environment;
  // Lease of the program that added the job; it is over now or soon.
  remove_variable(environment, lease::kLeaseVariable);
  remove_variable(environment, lease::kLeasedVariable);
  remove_variable(environment, lease::kDescriptorVariable);
  set_variable(environment, "INNKEEPER_JOB_ID", std::to_string(job.id));
  set_variable(environment, "INNKEEPER_JOB_NAME", job.title);
  set_variable(environment, "INNKEEPER_JOB_STATE", to_string(job.state));
  set_variable(environment, "INNKEEPER_JOB_CODE", std::to_string(job.code));
  set_variable(environment, "INNKEEPER_JOB_OUTPUT", directory_.output(job.id, job.attempt));
  std::vector<std::string> words = {"/bin/sh", "-c", job.notify};
  std::vector<char*> arguments, variables;
  for (std::string& word : words) arguments.push_back(word.data());
  for (std::string& entry : environment) variables.push_back(entry.data());
  arguments.push_back(nullptr);
  variables.push_back(nullptr);
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_t files;
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_init(&files);
  sigset_t all;
  sigfillset(&all);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
  posix_spawn_file_actions_addchdir_np(&files, job.directory.c_str());
  for (int fd = 0; fd < 3; ++fd) posix_spawn_file_actions_addopen(&files, fd, "/dev/null", O_RDWR, 0);
  pid_t child = -1;
  const int error =
      posix_spawn(&child, arguments[0], &files, &attributes, arguments.data(), variables.data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0)
    log(LogLevel::warn, "job " + std::to_string(job.id) + ": its notification could not be started");
}

}  // namespace innkeeper::queue
