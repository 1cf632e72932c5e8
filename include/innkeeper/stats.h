// What the engine has done since the last reset, and what each node holds now. Plain data; no torch.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace innkeeper {

struct NodeStats {
  int64_t budget = 0;    // bytes that may be used
  int64_t resident = 0;  // bytes in use now: replicas, arriving ones and kernels' own memory
  int64_t peak = 0;      // the most that was in use since the last reset
  int64_t replicas = 0;  // of `resident`, bytes of replicas
  int64_t pinned = 0;    // of `replicas`, bytes that the user pinned or that escaped (I12)
  int64_t recount = 0;   // `resident` as counted by the node's allocator
  int64_t evictions = 0;
  int64_t ops = 0;  // operators that ran here
};

// What a program does again and again, where it does not fit and its movement is planned.
struct PeriodStats {
  int64_t operators = 0;      // in a period; 0: none is known
  int64_t bytes_planned = 0;  // that arrive at accelerators in each
  int64_t bytes_bound = 0;    // no plan has less arriving
  int64_t bytes_short = 0;    // with so much more room nothing would have to move
  int64_t bytes_fetched = 0;  // by the last one
  // Of the last one, where the card's clock is known (simulated cards have one); else 0. With several cards,
  // of that which took most; what other programs do there counts as well.
  double seconds = 0;
  double kernel_seconds = 0;  // what it takes where nothing is waited for
  double seconds_bound = 0;   // no plan takes less: kernels or copies
};

// What a period copies of one block, as planned, between accelerators and their host.
struct BlockMoves {
  uint64_t block = 0;  // its number; 0: of all blocks that each period creates
  int64_t bytes_in = 0;
  int64_t bytes_out = 0;  // at most
};

struct Stats {
  int64_t ops = 0;
  int64_t fetches = 0;
  int64_t evictions = 0;           // replicas that were given up to make room or on request
  int64_t recomputed = 0;          // blocks whose operator ran again, instead of a copy each way
  int64_t other_bits = 0;          // kinds of operators that gave other bits when they ran again
  int64_t bytes_fetched = 0;       // host or disk to an accelerator, or disk to host
  int64_t bytes_written_back = 0;  // the other way
  int64_t bytes_between = 0;       // accelerator to accelerator
  int64_t bytes_from_disk = 0;     // of bytes_fetched
  int64_t bytes_to_disk = 0;       // of bytes_written_back
  int64_t moved_from_cpu = 0;      // bytes of CPU tensors that operators moved
  int64_t escaped = 0;             // replicas held by someone else (I12), now
  int64_t planned_periods = 0;     // of a program, followed by a plan from end to end
  int64_t divergences = 0;         // periods in which the program left its plan
  PeriodStats period;              // the last that was followed to its end
  double simulated_seconds = 0;    // the simulators' clock; 0 with no sim: node
  std::map<std::string, NodeStats> nodes;
};

}  // namespace innkeeper
