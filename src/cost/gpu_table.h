// The table of GPU models, for gpu_model.cc and derived_gpu.cc.
#pragma once

#include <span>

#include "cost/gpu_model.h"

namespace innkeeper::cost {

struct GpuRow {
  GpuModel model;
  unsigned gigabytes;           // that its name may carry, as 80 in "A100-SXM4-80GB"
  std::string_view other = {};  // what a driver calls it besides; empty: nothing else
};

std::span<const GpuRow> gpu_rows();

// What names are compared by: words of the name without a vendor's, "RTX", and the row's size of memory.
std::string key_of_gpu(std::string_view name, unsigned gigabytes);

// The row of this name; nullptr: none.
const GpuRow* find_row(std::string_view name);

}  // namespace innkeeper::cost
