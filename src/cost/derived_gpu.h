// Models of GPUs that the table lacks, derived from a driver's report.
#pragma once

#include <string>

#include "cost/gpu_model.h"

namespace innkeeper::cost {

// A driver's report of a GPU. 0: unknown.
struct GpuReport {
  std::string name;
  int major = 0;  // Compute capability, major part.
  int minor = 0;
  int multiprocessors = 0;
  double clock = 0;         // Highest clock of the multiprocessors, Hz.
  double memory_clock = 0;  // Highest memory clock, Hz; two transfers per cycle.
  int memory_bits = 0;      // Width of the memory's bus, bits.
  Bytes memory{};
};

// Returns the table's model if its name, multiprocessors and memory (to 10 %) match the report. Otherwise
// derives the rates from the compute capability: a multiprocessor's rate times their number and clock. A part
// of a GPU (MIG) is thus derived from its own multiprocessors.
GpuModel model_of(const GpuReport& report);

}  // namespace innkeeper::cost
