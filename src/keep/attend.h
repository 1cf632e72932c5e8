// A command that has a lease for as long as it, or anything that it started, lives.
//
//   this process   which its user started and sends signals to: waits for the command, and ends as it ends
//   the keeper     (keeper.h) its child: keeps the lease until nothing is left below it
//   the command    the keeper's child; what it starts, and what that leaves behind, comes to the keeper
//
// What the command starts may close the lease's descriptor, fork twice and begin a session of its own: the
// keeper is its subreaper all the same. Where this process is killed the keeper kills the command, as a kill
// of the command itself would, and keeps the lease for what is left. Where the keeper is killed, this
// process, which is a subreaper too, stays until nothing is left. Only where both are killed, the lease ends
// with the last process that has its descriptor.
//
// All three are in one process group and session, those of the caller. So the terminal's signals, and those
// to the group, reach the command by themselves. What this process alone gets is passed on, once, the value
// of sigqueue() included. When the command stops, this process stops by the same signal, and the other way
// round; a SIGSTOP to this process alone stops the command within a second.
#pragma once

#include <functional>

#include "base/status.h"
#include "lease/arbiter.h"
#include "lease/lease.h"

namespace innkeeper::keep {

// Replaces the process that calls it by the command, with its standard files, mask and handling of signals as
// they were before attend(); returns errno where it cannot.
using Become = std::function<int()>;

// Ends this process as the command ends: by its exit status, or by its signal. Returns only where the command
// did not begin, and has ended the lease then: `become`'s errno, or why there are no processes for it.
// `title` is what ps shows of the keeper. Requires: this process has one thread.
Result<int> attend(lease::Arbiter& arbiter, lease::Lease lease, const std::string& title,
                   const Become& become);

}  // namespace innkeeper::keep
