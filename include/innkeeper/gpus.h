// The GPUs of the machine at one moment, as plain data, without torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "innkeeper/export.h"

namespace innkeeper {

// One GPU or one MIG instance: the unit of a lease. None means "unknown", never zero.
struct GPU {
  std::string uuid;
  std::string name;
  int index = 0;                        // The driver's index, for messages only: CUDA may count otherwise.
  std::optional<int64_t> memory_total;  // Bytes, including those that the driver keeps for itself.
  std::optional<int64_t> memory_free;   // Includes bytes that are promised by leases and not allocated yet.
  std::optional<int64_t> memory_reserved;  // The driver's own bytes.
  std::optional<double> utilization;       // Utilization, 0 to 1.
  std::optional<double> power;             // Watts; for an instance: its GPU's.
  std::optional<double> power_limit;       // Watts.
  std::optional<int> temperature;          // Degrees Celsius.
};

// Returns the GPUs by PCI bus id, whatever CUDA_VISIBLE_DEVICES says; empty without a driver. The query
// takes milliseconds.
IK_EXPORT std::vector<GPU> gpus();

}  // namespace innkeeper
