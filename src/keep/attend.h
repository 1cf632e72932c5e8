// Runs a command with a lease that lasts as long as the command's processes.
//
//   this process   started by the user and target of the user's signals: waits for the command, ends like it
//   the keeper     (keeper.h) its child: holds the lease until no process is left below it
//   the command    the keeper's child; its orphaned descendants become children of the keeper
//
// The command's processes may close the lease's descriptor, fork twice and begin a session of their own: the
// keeper is their subreaper all the same. If this process is killed, the keeper kills the command, as its
// user intended, and holds the lease for the remaining processes. If the keeper is killed, this process,
// which is a subreaper too, stays until no process is left. Only if both are killed, the lease ends with the
// last process that has its descriptor.
//
// All three are in one process group and session, those of the caller. So the terminal's signals, and those
// to the group, reach the command by themselves. Signals to this process alone are passed on, once, with the
// value of sigqueue(). When the command stops, this process stops by the same signal, and the reverse; a
// SIGSTOP to this process alone stops the command within a second.
#pragma once

#include <functional>

#include "base/status.h"
#include "lease/arbiter.h"
#include "lease/lease.h"

namespace innkeeper::keep {

// Replaces the calling process by the command, with the standard files, mask and signal handling from before
// attend(). Returns errno on failure.
using Become = std::function<int()>;

// Ends this process as the command ends: by its exit status, or by its signal. Returns only if the command
// did not begin, after releasing the lease: `become`'s errno, or the reason why no process could be created.
// `title` is the keeper's name in ps. Requires: this process has one thread.
Result<int> attend(lease::Arbiter& arbiter, lease::Lease lease, const std::string& title,
                   const Become& become);

}  // namespace innkeeper::keep
