// The rates of this machine's GPUs: measured by the first program that moves any tensor, and stored for later
// ones.
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "cost/kept_rates.h"
#include "telemetry/condition.h"
#include "telemetry/cuda_view.h"
#include "telemetry/snapshot.h"
#include "torch/accelerator/backend.h"
#include "torch/accelerator/c10_device.h"
#include "torch/process/runtime_state.h"
#include "torch/process/switch_setting.h"
#include "torch/start/measure.h"
#include "torch/start/probe.h"

namespace innkeeper::torch_layer {
namespace {

// The probe uses 1/kBudgetShare of the budget, so that the evicted blocks soon come back.
constexpr int64_t kBudgetShare = 8;

std::string said(const cost::Measured& rates) {
  std::string text;
  const auto add = [&text](double rate, double unit, const std::string& what) {
    if (rate <= 0) return;
    text += (text.empty() ? "" : ", ") + std::to_string(static_cast<int64_t>(rate / unit)) + " " + what;
  };
  add(rates.flops, 1e9, "GFLOP/s in " + std::string(name_of(rates.precision)));
  add(rates.bytes, 1e9, "GB/s of its memory");
  add(rates.in, 1e9, "GB/s from the host");
  add(rates.out, 1e9, "GB/s to the host");
  return text.empty() ? "nothing: there is too little room or time" : text;
}

// CUDA tells a program in a MIG instance the UUID of the GPU; this returns the instance's UUID, from the
// driver.
std::string uuid_of(c10::DeviceIndex index, const telemetry::Snapshot& gpus, std::string by_cuda) {
  const auto ordinals = telemetry::cuda_view(gpus);
  const auto at = static_cast<size_t>(index);
  const bool is_known = ordinals && at < ordinals->size() && !(*ordinals)[at].empty();
  return is_known ? (*ordinals)[at] : std::move(by_cuda);
}

std::optional<cost::KeptRates> rates_of_today(const NodeBackend& backend) {
  if (backend.accelerator == nullptr) return std::nullopt;
  return backend.accelerator->rates_of_today(backend.device.index());
}

void keep(const NodeBackend& backend, const cost::Measured& measured) {
  std::optional<cost::KeptRates> today = rates_of_today(backend);
  if (!today) return;
  cost::KeptRates& rates = *today;
  const auto time = std::chrono::system_clock::now().time_since_epoch();
  rates.time = std::chrono::duration_cast<std::chrono::seconds>(time).count();
  rates.measured = measured;
  const telemetry::Snapshot now =
      telemetry::snapshot(telemetry::Wanted::clocks | telemetry::Wanted::processes);
  const telemetry::Condition condition =
      telemetry::condition_of(now, uuid_of(backend.device.index(), now, rates.uuid));
  rates.shared = condition.shared;
  rates.slowed = condition.slowed;
  const Status kept = cost::keep_rates(cost::kept_rates_directory(), rates);
  if (!kept.ok()) log(LogLevel::info, "what was measured is not kept: " + kept.message());
}

SwitchSetting& probe_setting() {
  static SwitchSetting it("INNKEEPER_PROBE");
  return it;
}

}  // namespace

plan::Speed measured_speed(plan::Speed expected, const cost::Measured& rates) {
  return {rates.bytes > 0 ? rates.bytes : expected.memory, cost::link_rate(rates, expected.link)};
}

void check_probe_setting() { probe_setting().check(); }

std::optional<cost::Measured> measured_before(const NodeBackend& backend) {
  if (!probe_setting().get()) return std::nullopt;
  const std::optional<cost::KeptRates> today = rates_of_today(backend);
  if (!today) return std::nullopt;
  const std::optional<cost::KeptRates> kept = cost::kept_rates(cost::kept_rates_directory(), today->uuid);
  // The earlier program may have multiplied no matrices.
  const bool holds = kept && kept->holds_for(*today) && kept->measured.flops > 0;
  return holds ? std::optional(kept->measured) : std::nullopt;
}

cost::Measured Runtime::probe_of(NodeId node, bool products) {
  const NodeBackend& backend = this->backend(node);
  Engine& engine = *engine_;
  const NodeId host = engine.host();
  const cost::Measured found = probe({.device = backend.device,
                                      .gpu = backend.kernel_clock->by_name(),
                                      .link = engine.table().node(node).speed().link,
                                      .space = Bytes(engine.glance(node).budget / kBudgetShare),
                                      .cache = backend.accelerator->cache(backend.device.index()),
                                      .products = products,
                                      .host_memory = host == kNoNode ? nullptr : &engine.device(host)});
  if (log_enabled(LogLevel::info))
    log(LogLevel::info, "measured of " + engine.device(node).name() + ": " + said(found));
  return found;
}

void Runtime::measure(NodeId node) {
  const NodeBackend& backend = this->backend(node);
  if (is_any_captured()) return;  // Waiting for the device would end the capture.
  KernelClock& clock = *backend.kernel_clock;
  if (!clock.claim_probe() || !probe_setting().get()) return;
  const cost::Measured found =
      probe_of(node, clock.has_products() && backend.accelerator->multiplies_at_its_rates());
  if (!found.any()) return;
  clock.set_measured(found);
  engine_->table().node(node).set_speed(measured_speed(engine_->table().node(node).speed(), found));
  keep(backend, found);
}

std::vector<std::pair<std::string, std::string>> Runtime::measure_all() {
  std::vector<std::pair<std::string, std::string>> all;
  for (const NodeId node : engine_->computing_nodes()) {
    const NodeBackend& backend = this->backend(node);
    if (backend.kernel_clock == nullptr) continue;
    (void)probe_of(
        node,
        backend.accelerator->multiplies_at_its_rates());  // The first run loads the kernels' libraries.
    const cost::Measured found = probe_of(node, backend.accelerator->multiplies_at_its_rates());
    if (found.any()) keep(backend, found);
    all.emplace_back(engine_->device(node).name(), found.any() ? said(found) : "");
  }
  return all;
}

std::vector<std::pair<std::string, std::string>> measure_gpus() { return KeptRuntime()->measure_all(); }

}  // namespace innkeeper::torch_layer
