// All processes of a job, for its supervisor, below which they all are: it is their subreaper, so that also
// those come to it whose parents have ended. A session of its own, a process group of its own or a double
// fork takes nobody out of the tree; only what another service starts on a job's behalf (docker, at,
// systemd-run) is not in it.
//
// They are found by /proc, again and again: a job may fork at any moment.
#pragma once

#include <sys/types.h>

#include <set>

#include "lease/card.h"

namespace innkeeper::queue {

class Tree {
 public:
  // The calling process, which has one thread, becomes the tree's root.
  Tree();

  // To each once. To the process group `group` at one moment, so that a process that it is just forking gets
  // it too; to the others as they are found. 0: no such group (any more).
  static void signal(int number, pid_t group);

  // SIGKILL to all that are there. Who has got it forks no more: when a look finds nobody new all have got
  // it, or are another user's. True: there were new ones up to the last look, so call it again soon.
  bool kill_all();

 private:
  std::set<lease::ProcessKey> killed_;
};

}  // namespace innkeeper::queue
