// Messages that a run of a program prints once, whichever of its processes reaches them first.
//
// The first process keeps a file without a name (python/innkeeper/cuda_compat/preload creates it) and stores
// its place, as PID:DESCRIPTOR, in INNKEEPER_FIRST. Its descendants find the file through /proc. Each message
// has a byte in it, which a process sets while it holds the file's lock.
#pragma once

#include <cstdint>

namespace innkeeper {

inline constexpr const char* kFirstVariable = "INNKEEPER_FIRST";
inline constexpr const char* kSaidOnceFile = "innkeeper-run";

enum class SaidOnce : uint8_t { no_gpu, settings, hidden_devices };

// Returns whether this process belongs to such a run.
bool is_in_run();

// Returns true the first time that a process of a run asks for this message. Returns false once the first
// process has ended, and outside of a run.
bool may_say_once(SaidOnce what);

}  // namespace innkeeper
