// A survey of the machine for display: GPUs with their lease holders, processes and foreign bytes. status,
// top, lease list and doctor show it; grants do not use it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "board/record.h"
#include "lease/directory.h"
#include "lease/gpu.h"
#include "lease/ledger.h"
#include "lease/store.h"
#include "telemetry/snapshot.h"
#include "telemetry/visible.h"

namespace innkeeper::cli {

// A process that uses a GPU.
struct User {
  int64_t pid = 0;
  std::optional<Bytes> used;  // Bytes that it uses; none: the driver does not tell.
  std::string name;           // Name of its owner; empty: no such process here.
  std::string command;        // Command line; empty: no such process here.
  std::string lease;          // Lease under which it runs; empty: foreign.
};

// A GPU or a MIG instance that can be leased.
struct Place {
  size_t gpu = 0;     // Index in snapshot.gpus: the GPU's number in PCI order.
  std::string label;  // Label: "0", or "0/1" for instance 1 of GPU 0.
  std::string uuid;
  std::string name;
  bool instance = false;
  std::optional<telemetry::Memory> memory;
  lease::Standing standing;
  std::vector<User> users;
  bool users_known = false;
};

struct Held {
  lease::Entry entry;
  std::string owner;
  std::vector<std::string> labels;  // Labels of its GPUs; the UUID of an unknown GPU.
  std::optional<Bytes> used;        // Bytes that its processes use; none: unknown.
};

// A process that runs on the managed device, with the memory that its engine holds.
struct Resident {
  int64_t pid = 0;   // Process id in the process's own PID namespace.
  bool here = true;  // True: that namespace is also this process's.
  std::string owner;
  std::string command;
  std::vector<board::NodeRow> nodes;
};

struct Survey {
  telemetry::Snapshot snapshot;
  telemetry::Visible visible;  // GPUs that this process was given.
  lease::Machine machine;
  std::vector<Place> places;        // Entries in the order of machine.gpus.
  std::vector<Held> leases;         // Leases by time of grant.
  std::vector<Held> line;           // Places in the line, first come first.
  std::vector<Resident> residents;  // Managed processes, sorted by PID.
  Status directory;  // Status of the lease directory; if not okay, leases and residents are unknown.
  std::string directory_path;
  std::string directory_weakness;  // Why leases there do not protect against hostile users; empty: they do.
  std::string directory_unseen;    // Why programs outside this container do not see them; empty: they do.
  bool directory_writable = true;
  // One line for each other directory: its owner, and why it is not used.
  std::vector<std::string> other_directories;
  int dead_files = 0;
  int64_t now_ns = 0;
};

// Surveys the machine. Blocks: for the snapshot, /proc and user names. It holds and awaits no lock. If
// `wanted` omits processes, they are taken from `before`.
Survey look_around(telemetry::Wanted wanted, const Survey* before = nullptr);

// Returns a line for each lease directory that exists in addition to this one.
std::vector<std::string> other_directories(const lease::Directory& directory);

// Returns an age such as "43 s", "12 min", "5 h" or "3 d".
std::string age_text(int64_t nanoseconds);

}  // namespace innkeeper::cli
