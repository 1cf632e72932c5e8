// Who a process is, from /proc. Slow (tens of microseconds): never under the global lock.
#pragma once

#include <string>
#include <vector>

#include "lease/card.h"
#include "lease/record.h"

namespace innkeeper::lease {

// The process and its ancestors, nearest first. Empty if there is no such process here.
std::vector<ProcessKey> process_line(int64_t pid);

// The inode of this process's PID namespace: numbers of another one mean nothing here.
uint64_t own_pid_namespace();

// Fills in who holds the lease: this process.
void sign(Record& record);

int64_t wall_clock_ns();

// "alice", or "uid 1000". Blocks: as long as the machine's user database takes.
std::string user_name(uint32_t uid);

}  // namespace innkeeper::lease
