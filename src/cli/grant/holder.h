// Holds a lease without a job: in this process until a signal, or in a background process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

#include "lease/arbiter.h"

namespace innkeeper::cli {

// Makes SIGINT, SIGTERM and SIGHUP end hold_here() instead of the process. The program calls it before it
// prints the lease, so that a signal from a reader of that line leaves no lease file behind.
void catch_signals();

// Holds the lease until one of those signals arrives, the lease expires, or its file is removed. Returns the
// signal's number, or 0. Requires: catch_signals() has been called.
int hold_here(lease::Lease lease, lease::Arbiter& arbiter);

// Passes the lease to a new process, which holds it as above, and returns that process's number.
// Fails with kInternal.
pid_t hold_in_background(lease::Arbiter& arbiter, lease::Lease lease);

// Parses a duration such as "30s", at least a second. Fails with kUsage and the option's name.
std::chrono::milliseconds duration(const std::string& text, const char* option);

}  // namespace innkeeper::cli
