#include "keep/children.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lease/process.h"

namespace innkeeper::keep {

namespace {

// Returns whether all children of this process are those of a queue. Reads all processes of the machine.
bool all_are_queues() {
  bool any = false;
  for (const lease::Descendant& each : lease::descendants(getpid())) {
    if (each.parent != getpid()) continue;
    if (each.name != kQueueName && each.name != kJobKeeperName) return false;
    any = true;
  }
  return any;
}

}  // namespace

Children::Children(Queues queues) : queues_(queues) { prctl(PR_SET_CHILD_SUBREAPER, 1); }

void Children::look(const Hear& hear) {
  int status = 0;
  pid_t child = 0;
  while ((child = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0) {
    if (child != command_ || ended_) continue;
    if (WIFSTOPPED(status)) {
      stopped_ = true;
      if (hear.stopped) hear.stopped(WSTOPSIG(status));
    } else if (WIFCONTINUED(status)) {
      stopped_ = false;
      if (hear.continued) hear.continued();
    } else {
      ended_ = true;
      stopped_ = false;
      status_ = status;
    }
  }
  none_ = child < 0 || (ended_ && queues_ == Queues::do_not_count && all_are_queues());
}

// The kernel does not reuse the command's process number before it has been waited for.
void Children::signal(int number, int code, int value) const {
  if (!running()) return;
  if (code != SI_QUEUE) {
    kill(command_, number);
    return;
  }
  sigval carried{};
  carried.sival_int = value;
  sigqueue(command_, number, carried);
}

}  // namespace innkeeper::keep
