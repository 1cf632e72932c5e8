// The engine's activity since the last reset, and the present contents of each node. Plain data; no torch.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace innkeeper {

struct NodeStats {
  int64_t budget = 0;    // Bytes that may be used.
  int64_t resident = 0;  // Bytes in use now: replicas, arriving ones included, and kernels' own memory.
  int64_t peak = 0;      // Largest `resident` since the last reset.
  int64_t replicas = 0;  // Bytes of replicas; a part of `resident`.
  int64_t pinned = 0;    // Bytes pinned by the user or escaped (I12); a part of `replicas`.
  int64_t recount = 0;   // `resident` as the node's allocator counts it.
  int64_t evictions = 0;
  int64_t ops = 0;  // Operators that ran here.
};

// The period of a program that does not fit and whose movement is planned.
struct PeriodStats {
  int64_t operators = 0;      // Operators of the period; 0: no period is known.
  int64_t bytes_planned = 0;  // Bytes per period that the plan fetches to accelerators.
  int64_t bytes_bound = 0;    // Least bytes that any plan fetches.
  int64_t bytes_short = 0;    // Bytes of budget that are missing for all blocks to stay.
  int64_t bytes_fetched = 0;  // Bytes that the last period fetched.
  // Seconds of the last period if the GPU's clock is known (simulated GPUs have one); else 0. With several
  // GPUs, those of the GPU that took most; work of other programs there counts as well.
  double seconds = 0;
  double kernel_seconds = 0;  // Time of its kernels alone.
  double seconds_bound = 0;   // Least time of any plan: the longer of kernels and copies.
};

// Copies of one block that the plan makes per period, between accelerators and their host.
struct BlockMoves {
  uint64_t block = 0;  // Number of the block; 0: all blocks that each period creates.
  int64_t bytes_in = 0;
  int64_t bytes_out = 0;  // Upper bound: a clean block is not copied again.
};

struct Stats {
  int64_t ops = 0;
  int64_t fetches = 0;
  int64_t evictions = 0;           // Replicas given up for space or on request.
  int64_t recomputed = 0;          // Blocks whose operator ran again in place of a copy each way.
  int64_t other_bits = 0;          // Kinds of operators that gave other bits when they ran again.
  int64_t bytes_fetched = 0;       // Host or disk to an accelerator, or disk to host.
  int64_t bytes_written_back = 0;  // Accelerator to host or disk, or host to disk.
  int64_t bytes_between = 0;       // Accelerator to accelerator.
  int64_t bytes_from_disk = 0;     // Part of bytes_fetched.
  int64_t bytes_to_disk = 0;       // Part of bytes_written_back.
  int64_t moved_from_cpu = 0;      // Bytes of CPU tensors that operators moved to the device.
  int64_t escaped = 0;             // Replicas that are held outside of the engine (I12), now.
  int64_t planned_periods = 0;     // Periods of programs that a plan followed from end to end.
  int64_t divergences = 0;         // Periods in which a program left its plan.
  PeriodStats period;              // Last period that was followed to its end.
  double simulated_seconds = 0;    // Clock of the simulated GPUs; 0: there is none.
  std::map<std::string, NodeStats> nodes;
};

}  // namespace innkeeper
