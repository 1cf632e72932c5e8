// The GPUs of the machine at one moment, as plain data; no torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "innkeeper/export.h"

namespace innkeeper {

// One card, or one MIG instance: what can be leased. None is "cannot be told", never zero.
struct GPU {
  std::string uuid;
  std::string name;
  int index = 0;                        // the driver's, for messages only: CUDA may count otherwise
  std::optional<int64_t> memory_total;  // bytes, with those that the driver keeps for itself
  std::optional<int64_t> memory_free;   // Includes bytes that are promised by leases and not allocated yet.
  std::optional<int64_t> memory_reserved;  // The driver's own bytes.
  std::optional<double> utilization;       // 0 to 1
  std::optional<double> power;             // watts; of an instance: its card's
  std::optional<double> power_limit;       // watts
  std::optional<int> temperature;          // degrees Celsius
};

// By PCI bus id, whatever CUDA_VISIBLE_DEVICES says; empty without a driver. Asks the driver: milliseconds.
IK_EXPORT std::vector<GPU> gpus();

}  // namespace innkeeper
