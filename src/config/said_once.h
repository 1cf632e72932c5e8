// What one run of a program says once, whichever of its processes comes to say it first.
//
// The first process keeps a file without a name (python/innkeeper/cuda_compat/preload makes it) and says
// where, as PID:DESCRIPTOR, in INNKEEPER_FIRST. What it starts finds the file through /proc. Each thing to
// say has a byte in it, which a process sets while it holds the file's lock.
#pragma once

#include <cstdint>

namespace innkeeper {

inline constexpr const char* kFirstVariable = "INNKEEPER_FIRST";
inline constexpr const char* kSaidOnceFile = "innkeeper-run";

enum class SaidOnce : uint8_t { no_gpu, settings, hidden_devices };

// Whether this process belongs to such a run.
bool is_in_run();

// True the first time in a run that a process asks for this. False, too, once the first process has ended,
// and outside of a run.
bool may_say_once(SaidOnce what);

}  // namespace innkeeper
