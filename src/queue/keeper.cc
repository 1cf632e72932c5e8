#include "queue/keeper.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <utility>

#include "base/descriptors.h"
#include "keep/children.h"
#include "keep/light.h"
#include "keep/restore.h"
#include "lease/here.h"

namespace innkeeper::queue {
namespace {

constexpr timespec kLookAgain{2, 0};

}  // namespace

void keep(const lease::OpenFile& life, lease::Lease& lease, const QueueDirectory& directory,
          const Program& program, const std::function<void()>& supervise) {
  prctl(PR_SET_NAME, keep::kJobKeeperName);
  setsid();
  keep::Children children;
  const pid_t supervisor = fork();
  // If fork() fails, this process supervises the job itself, and the job has no keeper.
  if (supervisor <= 0) supervise();
  children.set_command(supervisor);
  keep::let_go({life.fd(), lease.descriptor()});
  open_nowhere();
  sigset_t ended;
  sigemptyset(&ended);
  sigaddset(&ended, SIGCHLD);
  bool killed = false, light = false;
  keep::Restore restore;
  while (true) {
    const bool in_time = sigtimedwait(&ended, nullptr, &kLookAgain) < 0;
    children.look({});
    if (children.none() || in_time) ensure_runner_outside(directory, program);
    if (children.none()) break;
    // The lease record still names the supervisor, which was killed.
    if (children.ended() && lease.held() && !std::exchange(killed, true)) (void)lease::take_over_here(lease);
    if (killed) (void)restore.look(lease);
    if (in_time && !std::exchange(light, true)) keep::drop_code();
  }
  lease.leave();
  _exit(0);
}

}  // namespace innkeeper::queue
