// The table of GPU models, for gpu_model.cc and derived_gpu.cc.
#pragma once

#include <span>

#include "cost/gpu_model.h"

namespace innkeeper::cost {

struct GpuRow {
  GpuModel model;
  unsigned gigabytes;           // Memory size that its name may contain, as 80 in "A100-SXM4-80GB".
  std::string_view other = {};  // Another name that a driver uses; empty: none.
};

std::span<const GpuRow> gpu_rows();

// Returns the key by which names are compared: the words of the name without a vendor's, "RTX", and the
// row's memory size.
std::string key_of_gpu(std::string_view name, unsigned gigabytes);

// Returns the row of this name; nullptr: none.
const GpuRow* find_row(std::string_view name);

}  // namespace innkeeper::cost
