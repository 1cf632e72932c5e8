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

// Enough for what forks while it is looked for; not for a bomb, which SIGKILL ends.
constexpr int kLooks = 3;
constexpr int kKillLooks = 50;

// What forks and ends by turns lives for less than a look through /proc takes. Each of its lives becomes a
// child of ours, and these the kernel lists at once. They cannot become others: nobody but us reaps them.
void kill_children() {
  std::ifstream list("/proc/thread-self/children");  // not in every kernel
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
