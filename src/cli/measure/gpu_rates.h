// Runs a Python with PyTorch to measure GPUs' compute and memory rates, because a matrix product needs
// PyTorch's libraries. The results are stored where programs look for them (cost/kept_rates.h).
#pragma once

#include <string>

#include "base/status.h"

namespace innkeeper::cli {

// Measures the GPUs that CUDA_VISIBLE_DEVICES names now, with `python -m innkeeper.measure_gpus`. The message
// of a failure is the last line that it wrote on standard error.
Status measure_gpu_rates(const std::string& python);

}  // namespace innkeeper::cli
