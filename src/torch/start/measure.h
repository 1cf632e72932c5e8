// The measured rates of this machine's GPUs (Runtime::measure measures them), and the setting that forbids
// measuring.
//
// Thread safety: all functions.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cost/measured.h"
#include "innkeeper/export.h"
#include "plan/speed.h"

namespace innkeeper::torch_layer {

struct NodeBackend;

// Throws if INNKEEPER_PROBE says neither on nor off.
void check_probe_setting();

// The speed `expected` with the measured rates in place.
plan::Speed measured_speed(plan::Speed expected, const cost::Measured& rates);

// Rates that an earlier program of this user measured on this accelerator, with this driver and PyTorch,
// matrix products included. None if the accelerator's rates are not stored.
std::optional<cost::Measured> measured_before(const NodeBackend& backend);

// Measures each GPU that is a node and does not report its times, matrix products included, even if it was
// measured before. Stores the rates of CUDA devices for later programs. Returns nodes and rates as text; a
// rate's text is empty if nothing was measured.
IK_EXPORT std::vector<std::pair<std::string, std::string>> measure_gpus();

}  // namespace innkeeper::torch_layer
