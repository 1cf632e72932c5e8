// Identity and state of processes, from /proc. Slow (tens of microseconds): never used under the global lock.
#pragma once

#include <string>
#include <vector>

#include "lease/gpu.h"
#include "lease/record.h"

namespace innkeeper::lease {

// Returns the process and its ancestors, nearest first. Empty if there is no such process here.
std::vector<ProcessKey> process_line(int64_t pid);

// A process that descends from a given one.
struct Descendant {
  ProcessKey process;
  int64_t parent = 0;
  int64_t group = 0;  // Process group.
  std::string name;   // Name as ps shows it, printable.
};

// Returns all descendants of this process, parents first, in any session or group. Descendants behind a
// double fork are included if `pid` is a subreaper. Processes that are forked meanwhile may be missing.
std::vector<Descendant> descendants(int64_t pid);

// Sends a signal to this very process, never to another one that has reused its number. False: it is gone, or
// is another user's.
bool signal_process(const ProcessKey& process, int signal);

// Returns the inode of this process's PID namespace: process numbers of another namespace mean nothing here.
uint64_t own_pid_namespace();

// Returns the state that ps shows, for example 'T' if it is stopped; 0: it is gone, or cannot be seen.
char process_state(const ProcessKey& process);
char process_state(int64_t pid);  // Requires: the number is still the process's own.
// Returns the states of all threads of a process, for example "SSR"; '?': the thread cannot be read. Empty:
// the process is gone, or cannot be seen.
std::string thread_states(int64_t pid);

// Enters this process as the lease's holder.
void sign(Record& record);

// Returns "alice", or "uid 1000". Blocks: as long as the machine's user database takes.
std::string user_name(uint32_t uid);

}  // namespace innkeeper::lease
