// What leasing needs to know of the machine, as plain data: no NVML here, so that the protocol is tested
// without one. from_snapshot.h makes it from a telemetry snapshot; all of it is gathered before any lock.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"

namespace innkeeper::lease {

// A process for as long as the machine runs: numbers are used again, a number with its start is not.
struct ProcessKey {
  int64_t pid = 0;
  uint64_t start_ticks = 0;  // field 22 of /proc/<pid>/stat
  auto operator<=>(const ProcessKey&) const = default;
};

// A process that has memory of a card.
struct Process {
  Bytes used;
  // Itself, its parent and so on. Empty: its number means nothing here (another PID namespace, or it is
  // gone), so that nobody can say which lease it belongs to.
  std::vector<ProcessKey> line;
};

// One card, or one MIG instance: what a lease can be on.
struct Card {
  std::string uuid;
  int vendor = 0;             // a program uses CUDA or HIP, so the cards of one lease are of one vendor
  Bytes total;                // 0: unknown; then only whole cards can be leased
  Bytes reserved;             // by the driver
  std::optional<Bytes> free;  // none: nothing but leases is known of its memory
  // Whether the GPU shares the host's memory (GB10, Jetson). The memory that other programs of the host use
  // is unavailable there, but does not count as use of the GPU.
  bool unified = false;
  bool processes_known = false;
  std::vector<Process> processes;
  std::optional<double> power_ratio;  // of its limit
  std::optional<double> utilization;  // 0 to 1

  Bytes capacity() const { return total - reserved; }
};

struct Machine {
  std::vector<Card> cards;
  // How good the link of cards a and b is, at [a * cards.size() + b]: more is better. Empty: unknown.
  std::vector<double> links;
};

}  // namespace innkeeper::lease
