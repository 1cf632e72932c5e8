// Plain data about the machine that leasing needs. It uses no NVML, so that tests of the protocol need none.
// from_snapshot.h makes it from a telemetry snapshot; all of it is gathered before any lock.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"

namespace innkeeper::lease {

// Identifies a process while the machine runs: process numbers are reused, a number with its
// start time is not.
struct ProcessKey {
  int64_t pid = 0;
  uint64_t start_ticks = 0;  // Start time: field 22 of /proc/<pid>/stat.
  auto operator<=>(const ProcessKey&) const = default;
};

// A process that has memory of a GPU.
struct Process {
  Bytes used;
  // The process, its parent and so on. Empty: its number means nothing here (it is of another PID namespace
  // or gone), so that its lease is unknown.
  std::vector<ProcessKey> line;
};

// One GPU or one MIG instance: the unit on which leases are granted.
struct Gpu {
  std::string uuid;
  int vendor = 0;  // Vendor; a program uses CUDA or HIP, so the GPUs of one lease are of one vendor.
  Bytes total;     // Total memory; 0: unknown, so that only the whole GPU can be leased.
  Bytes reserved;  // Memory that the driver reserves.
  std::optional<Bytes> free;  // Free memory; none: only the leases on it are known.
  // Whether the GPU shares the host's memory (GB10, Jetson). The memory that other programs of the host use
  // is unavailable there, but does not count as use of the GPU.
  bool unified = false;
  bool processes_known = false;
  std::vector<Process> processes;
  std::optional<double> power_ratio;  // Power draw as a share of its limit.
  std::optional<double> utilization;  // Utilization, 0 to 1.

  Bytes capacity() const { return total - reserved; }
};

struct Machine {
  std::vector<Gpu> gpus;
  // Quality of the link of GPUs a and b, at [a * gpus.size() + b]: more is better. Empty: unknown.
  std::vector<double> links;
};

}  // namespace innkeeper::lease
