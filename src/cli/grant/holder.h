// Keeping a lease without a job: in this process until a signal, or in one of its own in the background.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

#include "lease/arbiter.h"

namespace innkeeper::cli {

// From here on SIGINT, SIGTERM and SIGHUP end hold_here() instead of the process. Called before anybody can
// learn of the lease, so that whoever ends it by a signal leaves no file of it behind.
void catch_signals();

// Until one of those signals, the lease's expiry, or until somebody removed it. Gives the signal, or 0.
int hold_here(lease::Lease lease, lease::Arbiter& arbiter);

// A process of its own takes the lease over and keeps it as above; this one goes on without it. Gives its
// number. Fails with kInternal.
pid_t hold_in_background(lease::Arbiter& arbiter, lease::Lease lease);

// "30s": fails with kUsage and the option's name. At least a second.
std::chrono::milliseconds duration(const std::string& text, const char* option);

}  // namespace innkeeper::cli
