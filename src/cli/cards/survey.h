// The machine for people: the cards that leases are on, who holds them, who uses them, and what is foreign.
// What status, top, lease list and doctor show; grants do not use it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "board/record.h"
#include "lease/card.h"
#include "lease/directory.h"
#include "lease/ledger.h"
#include "lease/store.h"
#include "telemetry/snapshot.h"
#include "telemetry/visible.h"

namespace innkeeper::cli {

// A process on a card.
struct User {
  int64_t pid = 0;
  std::optional<Bytes> used;  // none: the driver cannot tell
  std::string name;           // of its owner; empty: no such process here
  std::string command;        // empty: no such process here
  std::string lease;          // the lease that it runs under; empty: foreign
};

// A card, or a MIG instance, that can be leased.
struct Place {
  size_t card = 0;    // in snapshot.cards: its number in PCI order
  std::string label;  // "0", or "0/1" for instance 1 of card 0
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
  std::vector<std::string> labels;  // of its places; an unknown card's UUID
  std::optional<Bytes> used;        // by its processes; none: cannot be told
};

// A process that runs on the managed device, and what its engine holds.
struct Resident {
  int64_t pid = 0;   // in its own PID namespace
  bool here = true;  // which is this one
  std::string owner;
  std::string command;
  std::vector<board::NodeRow> nodes;
};

struct Survey {
  telemetry::Snapshot snapshot;
  telemetry::Visible visible;  // what this process was given
  lease::Machine machine;
  std::vector<Place> places;        // as machine.cards
  std::vector<Held> leases;         // by time of grant
  std::vector<Held> line;           // places in the line, first come first
  std::vector<Resident> residents;  // by PID
  Status folder;                    // why leases and residents are not known
  std::string folder_path;
  std::string folder_weakness;  // why leases there protect among friends only; empty: they protect
  std::string folder_unseen;    // why they are not seen outside of this container; empty: they are
  bool folder_writable = true;
  std::vector<std::string> other_folders;  // a line for each: whose it is, and why it is not used
  int dead_files = 0;
  int64_t now_ns = 0;
};

// Blocks: as the snapshot does, for /proc and for names of users. No lock is held or waited for. Where
// `wanted` has no processes, they are as they were in `before`.
Survey look_around(telemetry::Wanted wanted, const Survey* before = nullptr);

// What is to be said of lease folders that are there beside this one.
std::vector<std::string> other_folders(const lease::Directory& directory);

// "43 s", "12 min", "5 h", "3 d".
std::string age_text(int64_t nanoseconds);

}  // namespace innkeeper::cli
