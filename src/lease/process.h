// Who a process is, from /proc. Slow (tens of microseconds): never under the global lock.
#pragma once

#include <string>
#include <vector>

#include "lease/card.h"
#include "lease/record.h"

namespace innkeeper::lease {

// The process and its ancestors, nearest first. Empty if there is no such process here.
std::vector<ProcessKey> process_line(int64_t pid);

// One that descends from some process.
struct Descendant {
  ProcessKey process;
  int64_t parent = 0;
  int64_t group = 0;  // its process group
  std::string name;   // as ps shows it, printable
};

// All that this process started, and what these started and so on, parents first: in whatever session or
// group it is, and also behind a double fork if `pid` is a subreaper. What is forked meanwhile may be
// missing.
std::vector<Descendant> descendants(int64_t pid);

// Sends a signal to this very process, never to another that has its number by now. False: it is gone, or is
// another user's.
bool signal_process(const ProcessKey& process, int signal);

// The inode of this process's PID namespace: numbers of another one mean nothing here.
uint64_t own_pid_namespace();

// What ps shows as its state, 'T' of one that is stopped; 0: it is gone, or cannot be seen.
char process_state(const ProcessKey& process);
char process_state(int64_t pid);  // where it is known that the number is still its own
// The states of all threads of a process, "SSR" say; '?' of one that cannot be read. Empty: the process is
// gone, or cannot be seen.
std::string thread_states(int64_t pid);

// Fills in who holds the lease: this process.
void sign(Record& record);

// "alice", or "uid 1000". Blocks: as long as the machine's user database takes.
std::string user_name(uint32_t uid);

}  // namespace innkeeper::lease
