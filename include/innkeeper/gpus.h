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
  std::optional<int64_t> memory_free;   // with bytes that leases have promised and that are not allocated yet
  std::optional<int64_t> memory_reserved;  // that the driver keeps for itself
  std::optional<double> utilization;       // 0 to 1
  std::optional<double> power;             // watts; of an instance: its card's
  std::optional<double> power_limit;       // watts
  std::optional<int> temperature;          // degrees Celsius
};

// By PCI bus id, whatever CUDA_VISIBLE_DEVICES says; empty without a driver. Asks the driver: milliseconds.
IK_EXPORT std::vector<GPU> gpus();

}  // namespace innkeeper
