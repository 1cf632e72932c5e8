// Runs a Python with PyTorch to measure GPUs' compute and memory rates, because a matrix product needs
// PyTorch's libraries. The results are stored where programs look for them (cost/kept_rates.h).
#pragma once

#include <string>

#include "base/status.h"

namespace innkeeper::cli {

// Returns the Python beside this program, as in a virtual environment, else "python3", which PATH resolves.
std::string python_beside();

// Measures the GPUs that CUDA_VISIBLE_DEVICES names now, by `python -m innkeeper.measure_gpus`. The message
// of a failure is the last line of its standard error.
Status measure_gpu_rates(const std::string& python);

}  // namespace innkeeper::cli
