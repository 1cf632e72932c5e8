// What one run of a program says once, whichever of its processes comes to say it first.
//
// The first process keeps a file without a name (python/innkeeper/cuda_names/preload makes it) and says
// where, as PID:DESCRIPTOR, in INNKEEPER_FIRST. What it starts finds the file through /proc. To speak is to
// seal the file, which the kernel lets one process do.
#pragma once

namespace innkeeper {

inline constexpr const char* kFirstVariable = "INNKEEPER_FIRST";
inline constexpr const char* kSaidOnceFile = "innkeeper-run";

// True the first time in a run that a process asks. False, too, once the first process has ended.
bool may_say_once();

}  // namespace innkeeper
