// CPU tensors beside managed ones: the operator that takes them moves them to the managed device.
//
// A program that imports innkeeper need not move its targets, masks and hidden states. An operator with
// managed and CPU operands runs as if the program had moved the CPU tensors by hand: its results are managed.
// A CPU tensor that it writes stays on the CPU and gets the result. A CPU tensor that requires a gradient
// gets it on the CPU (cpu_gradient.h).
//
// An operator checks its operands (device_check.h) before it begins, and throws MixedOperands. So operators
// whose operands are all managed cost nothing more.
//
// Thread safety: all functions.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <functional>
#include <string_view>

#include "base/types.h"
#include "innkeeper/export.h"

namespace innkeeper::torch_layer {

struct ManagedOp;

// The setting: the value set last, else INNKEEPER_MIXED (move or refuse), else move.
IK_EXPORT bool moves_cpu_tensors();
IK_EXPORT void set_moves_cpu_tensors(bool moves);
// Throws if the variable has another value.
IK_EXPORT void check_mixed_setting();

// Whether the tensor is a CPU tensor that moves to stand beside managed ones. A tensor without dimensions is
// a number, which every operator takes.
inline bool moves_beside_managed(const at::Tensor& x) {
  return x.defined() && x.device().is_cpu() && x.dim() > 0;
}

// Thrown by an operator that has not begun: some operands are CPU tensors, which must be moved.
struct MixedOperands {};

// Calls `run` with the operator's CPU operands moved. The arguments are on the stack; the results replace
// them.
void run_moved(const ManagedOp& op, torch::jit::Stack* stack,
               void (*run)(const ManagedOp&, torch::jit::Stack*));

// Reports and counts the move of a CPU tensor, and performs it as the program would.
at::Tensor note_and_move(std::string_view op, const at::Tensor& cpu_tensor, c10::Device device);

// Bytes of CPU tensors that operators have moved, in both directions.
int64_t bytes_moved_from_cpu();
void reset_bytes_moved_from_cpu();

// Called before each such move, for a message that names the program's line. May be empty.
using MixedNotice = std::function<void(std::string_view op, c10::IntArrayRef sizes, Bytes bytes)>;
IK_EXPORT void set_mixed_notice(MixedNotice notice);

}  // namespace innkeeper::torch_layer
