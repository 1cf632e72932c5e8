#include "torch/operator/process_settings.h"

#include <ATen/Context.h>

#include <atomic>

#include "torch/errors.h"
#include "torch/process/fork.h"
#include "torch/process/runtime_state.h"

namespace innkeeper::torch_layer {
namespace {

std::atomic<int> g_changes{0};

}  // namespace

ProcessSettings ProcessSettings::now() {
  const at::Context& context = at::globalContext();
  ProcessSettings settings;
  const auto add = [&settings](uint64_t value, int bits) { settings.bits_ = settings.bits_ << bits | value; };
  const auto enabled = [&](bool value) { add(value ? 1 : 0, 1); };
  enabled(context.userEnabledMkldnn());
  enabled(context.deterministicMkldnn());
  enabled(context.userEnabledNNPACK());
  enabled(context.deterministicAlgorithms());
  enabled(context.deterministicFillUninitializedMemory());
  enabled(context.allowFP16ReductionCPU());
  enabled(context.allowFP16BF16ReductionMathSDP());
  enabled(context.userEnabledCuDNN());
  enabled(context.benchmarkCuDNN());
  enabled(context.deterministicCuDNN());
  enabled(context.allowFP16AccumulationCuBLAS());
  const auto precision = [&](at::Float32Backend backend, at::Float32Op op) {
    add(static_cast<uint64_t>(context.float32Precision(backend, op)), 3);
  };
  for (const at::Float32Op op : {at::Float32Op::CONV, at::Float32Op::RNN, at::Float32Op::MATMUL}) {
    precision(at::Float32Backend::MKLDNN, op);
    precision(at::Float32Backend::CUDA, op);
  }
  add(static_cast<uint64_t>(context.allowFP16ReductionCuBLAS()), 2);
  add(static_cast<uint64_t>(context.allowBF16ReductionCuBLAS()), 2);
  add(static_cast<uint64_t>(context.linalgPreferredBackend()), 3);
  add(static_cast<uint64_t>(context.qEngine()), 4);
  return settings;
}

SettingChange::SettingChange() {
  g_changes.fetch_add(1);
  Runtime* const runtime = runtime_if_started();
  if (runtime == nullptr || is_forked_child()) return;
  const Status done = runtime->engine().recomputer().recompute_all();
  if (done.ok()) return;
  g_changes.fetch_sub(1);
  throw_status(done, "a setting of PyTorch for all of the process");
}

SettingChange::~SettingChange() { g_changes.fetch_sub(1); }

bool SettingChange::under_way() { return g_changes.load() != 0; }

}  // namespace innkeeper::torch_layer
