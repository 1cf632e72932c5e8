// Runs a program on the engine and on a naive model of it, a vector of bytes for each block, and compares.
//
// Each step is one action of a program or its user. After each the walk checks the invariants; pinned and
// escaped replicas must be where they were (I3, I12); every kernel compares the bytes that it sees with the
// model. A step may fail for want of free space only, and only on a machine that is too small; then it
// changes nothing. In the end the walk frees everything, and nothing may be left.
//
// With several lanes, steps are dealt to threads that overtake each other inside the engine
// (model/interleaving.h); a step that would use a block which another lane's step is using, and one of the
// two writes, is left out: the program orders its accesses, as PyTorch asks (I8).
//
// It knows no test framework: the walk, the shrinker and the fuzzer share it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "model/program.h"
#include "support/machine.h"

namespace innkeeper::test {

struct WalkOptions {
  MachineOptions machine;
  size_t max_blocks = 24;
  // Size at which pinned blocks and a kernel's operands fit three quarters of a budget.
  size_t max_size = 4500;
  bool may_run_out = false;  // The machine is so small that requests may find no free space.
  size_t lanes = 1;
};

struct WalkResult {
  std::string failure;  // First difference from the model; empty if there is none.
  int64_t evictions = 0;
  int64_t fetches = 0;
  int64_t left_out = 0;  // Steps left out because other lanes' steps used their blocks.
};

WalkResult walk(const WalkOptions& options, const Program& program);

// The machines on which programs are tried.
struct WalkCase {
  const char* name;
  WalkOptions options;
};
std::span<const WalkCase> walk_cases();

}  // namespace innkeeper::test
