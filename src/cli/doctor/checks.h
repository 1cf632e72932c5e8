// What doctor looks for. Each check is a pure function of what was gathered before, so one line of cure
// belongs to one trouble and a test can make each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/cards/survey.h"

namespace innkeeper::cli {

enum class Grade : uint8_t {
  good,
  hint,     // works, and could be better
  trouble,  // does not work, or not as people expect
};

struct Finding {
  Grade grade = Grade::good;
  std::string name;  // "driver", for scripts
  std::string what;  // one line, with the numbers
  std::string cure;  // one line; empty if good
};

// What the checks are made of, besides the survey.
struct Patient {
  Survey survey;
  double start_seconds = 0;       // until the driver's library answered for the first time
  Status lock;                    // taking the global lock
  bool processes_hidden = false;  // /proc shows this user's processes alone
  bool container = false;
  bool folder_named = false;      // by INNKEEPER_LEASE_DIR
  bool folder_mounted = false;    // the lease folder is a mount of its own, or in one
  std::string removed_at_logout;  // that this user's leases are, and why; empty: they stay
  std::string folder_full;        // the lease folder has no room for a lease, and what is left; empty: it has
  Bytes shared_room;              // that a default lease folder shares with other files; 0: it has its own
  bool watches_left = true;       // inotify can be used
  int protected_regular = -1;     // fs.protected_regular; -1: unknown
  bool mps = false;               // an MPS daemon's pipe is there
  std::string visible_list;       // CUDA_VISIBLE_DEVICES as it is
  bool visible_set = false;
  std::string device_order;  // CUDA_DEVICE_ORDER
  std::string outer_lease;   // INNKEEPER_LEASE
  std::string libraries;     // INNKEEPER_LIBRARIES
};

// Gathers all of it. Blocks: up to a few seconds. `lock_limit_ms`: how long to try for the global lock.
Patient examine(int lock_limit_ms);

// The driver and its cards; the folder and its leases; the environment; libraries. In the order in which to
// cure.
std::vector<Finding> check(const Patient& patient);

}  // namespace innkeeper::cli
