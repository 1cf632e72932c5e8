// What was measured of this machine's GPUs (Runtime::measure does it), and the setting that forbids it.
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

// Throws where INNKEEPER_PROBE says neither on nor off.
void check_probe_setting();

// The speed with what was measured of it.
plan::Speed measured_speed(plan::Speed expected, const cost::Measured& rates);

// By an earlier program of this user on this accelerator, with this driver and PyTorch, its matrix products
// included. None where the accelerator's rates are not kept.
std::optional<cost::Measured> measured_before(const NodeBackend& backend);

// Measures each GPU that is a node and does not report its times, matrix products included, whether or not it
// was measured before, and keeps what CUDA devices have for later programs. Returns nodes and rates as text,
// empty where nothing was found.
IK_EXPORT std::vector<std::pair<std::string, std::string>> measure_gpus();

}  // namespace innkeeper::torch_layer
