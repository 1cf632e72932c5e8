// The checks of doctor. Each is a pure function of data gathered before, so that each trouble has one line of
// cure and a test can produce each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/gpus/survey.h"

namespace innkeeper::cli {

enum class Grade : uint8_t {
  good,
  hint,     // Works, but could be better.
  trouble,  // Fails, or differs from users' expectations.
};

struct Finding {
  Grade grade = Grade::good;
  std::string name;  // Name for scripts, for example "driver".
  std::string what;  // One line, with the numbers.
  std::string cure;  // One line; empty if good.
};

// Input of the checks.
struct Patient {
  Survey survey;
  double start_seconds = 0;       // Time until the driver's library answered for the first time, s.
  Status lock;                    // Status of taking the global lock.
  bool processes_hidden = false;  // True: /proc shows only this user's processes.
  bool container = false;
  bool directory_named = false;    // True: INNKEEPER_LEASE_DIR names the directory.
  bool directory_mounted = false;  // True: the lease directory is a mount of its own, or in one.
  std::string removed_at_logout;   // Why a logout removes this user's leases; empty: they stay.
  std::string
      directory_full;  // Free space of a lease directory that cannot take another lease; empty: it can.
  Bytes shared_space;  // Space that a default lease directory shares with other files; 0: it shares none.
  bool watches_left = true;    // True: inotify can be used.
  int protected_regular = -1;  // Value of fs.protected_regular; -1: unknown.
  bool mps = false;            // True: an MPS daemon's pipe exists.
  std::string visible_list;    // Value of CUDA_VISIBLE_DEVICES.
  bool visible_set = false;
  std::string device_order;  // Value of CUDA_DEVICE_ORDER.
  std::string outer_lease;   // Value of INNKEEPER_LEASE.
  std::string libraries;     // Value of INNKEEPER_LIBRARIES.
};

// Gathers the input. Blocks: up to a few seconds. `lock_limit_ms`: longest wait for the global lock.
Patient examine(int lock_limit_ms);

// Checks the driver and its GPUs, the directory and its leases, the environment, and libraries. The findings
// are in the order in which to cure them.
std::vector<Finding> check(const Patient& patient);

}  // namespace innkeeper::cli
