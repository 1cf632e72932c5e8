// All processes of a job, which are descendants of its supervisor. The supervisor is their subreaper, so that
// processes whose parents have ended become its children. A session or process group of its own or a double
// fork takes no process out of the tree. Only processes that another service starts on a job's behalf
// (docker, at, systemd-run) are outside.
//
// The processes are searched in /proc repeatedly, because a job may fork at any moment.
#pragma once

#include <sys/types.h>

#include <set>

#include "lease/gpu.h"

namespace innkeeper::queue {

class Tree {
 public:
  // Makes the calling process the tree's root. Requires: it has one thread.
  Tree();

  // Signals each process once. The process group `group` is signalled at one moment, so that a process that
  // it is just forking gets the signal too. The other processes are signalled as they are found. `group` 0:
  // there is no such group (any more).
  static void signal(int number, pid_t group);

  // Sends SIGKILL to all present processes. A killed process forks no more, so a pass that finds no new
  // process is the last. By then all have got the signal or belong to another user. Returns true if the last
  // pass found new ones; call it again soon then.
  bool kill_all();

 private:
  std::set<lease::ProcessKey> killed_;
};

}  // namespace innkeeper::queue
