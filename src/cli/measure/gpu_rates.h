// Has a Python with PyTorch measure what GPUs compute and touch per second: a matrix product needs its
// libraries. What it finds is kept where programs look for it (cost/kept_rates.h).
#pragma once

#include <string>

#include "base/status.h"

namespace innkeeper::cli {

// The Python beside this program, as a virtual environment has it, else python3, which PATH finds.
std::string python_beside();

// Measures the GPUs that CUDA_VISIBLE_DEVICES names now, with `python -m innkeeper.measure_gpus`. The message
// of a failure is the last line that it wrote on standard error.
Status measure_gpu_rates(const std::string& python);

}  // namespace innkeeper::cli
