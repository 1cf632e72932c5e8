#include "keep/children.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

namespace innkeeper::keep {

Children::Children() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

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
  none_ = child < 0;
}

// The kernel gives its process number to no other process before it has been waited for.
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
