// Samples of bytes per node while a program runs, for plots (runtime.h: sample_start).
#pragma once

#include <atomic>

#include "residency/engine.h"

namespace innkeeper::torch_layer {

extern std::atomic<bool> g_sampling;
inline bool sampling() { return g_sampling.load(std::memory_order_relaxed); }
void sample(Engine& engine);

}  // namespace innkeeper::torch_layer
