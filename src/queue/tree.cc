#include "queue/tree.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "lease/process.h"

namespace innkeeper::queue {
namespace {

// Enough for a process that forks during the search, but not for a fork bomb, which SIGKILL ends.
constexpr int kLooks = 3;
constexpr int kKillLooks = 50;

// A process that forks and ends by turns lives for less time than a pass through /proc takes. Each
// new process becomes a child of ours, and the kernel lists these at once. Their numbers cannot be
// reused, because only we reap them.
void kill_children() {
  std::ifstream list("/proc/thread-self/children");  // Some kernels lack this file.
  for (pid_t child = 0; list >> child;) kill(child, SIGKILL);
}

}  // namespace

Tree::Tree() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

void Tree::signal(int number, pid_t group) {
  if (group > 0) ::kill(-group, number);
  std::set<lease::ProcessKey> told;
  bool fresh = true;
  for (int look = 0; fresh && look < kLooks; ++look) {
    fresh = false;
    for (const lease::Descendant& each : lease::descendants(getpid())) {
      if (group > 0 && each.group == group) continue;
      if (!told.insert(each.process).second) continue;
      fresh = true;
      (void)lease::signal_process(each.process, number);
    }
  }
}

bool Tree::kill_all() {
  for (int look = 0; look < kKillLooks; ++look) {
    kill_children();
    bool fresh = false;
    for (const lease::Descendant& each : lease::descendants(getpid())) {
      fresh = killed_.insert(each.process).second || fresh;
      (void)lease::signal_process(each.process, SIGKILL);
    }
    if (!fresh) return false;
  }
  return true;
}

}  // namespace innkeeper::queue
