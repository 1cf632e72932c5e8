// Models of GPUs that the table lacks, by what a driver says of them.
#pragma once

#include <string>

#include "cost/gpu_model.h"

namespace innkeeper::cost {

// What a driver reports of a GPU. 0: unknown.
struct GpuReport {
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
  int multiprocessors = 0;
  double clock = 0;         // highest, of the multiprocessors, in Hz
  double memory_clock = 0;  // highest, in Hz; two transfers a cycle
  int memory_bits = 0;      // width of the memory's bus
  Bytes memory{};
};

// The table's model where its name, multiprocessors, and memory (to 10 %) are those of the report; otherwise
// one whose rates are a multiprocessor's of its compute capability times number and clock. A part of a GPU
// (MIG) is so derived from the multiprocessors that it has.
GpuModel model_of(const GpuReport& report);

}  // namespace innkeeper::cost
