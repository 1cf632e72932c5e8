#include "innkeeper/torch/runtime.h"

#include <ATen/Context.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <shared_mutex>

#include "base/heap_reserve.h"
#include "base/log.h"
#include "config/machine.h"
#include "config/misspelt.h"
#include "config/said_once.h"
#include "device/disk.h"
#include "device/host.h"
#include "torch/accelerator/backend.h"
#include "torch/accelerator/c10_device.h"
#include "torch/errors.h"
#include "torch/memory/cpu_allocator.h"
#include "torch/memory/moved_copies.h"
#include "torch/memory/real_memory.h"
#include "torch/operator/fallback.h"
#include "torch/operator/mixed_move.h"
#include "torch/operator/recorded_operator.h"
#include "torch/operator/soft_placement.h"
#include "torch/process/fork.h"
#include "torch/process/nodes_setting.h"
#include "torch/process/runtime_state.h"
#include "torch/process/switch_setting.h"
#include "torch/start/copy_events.h"
#include "torch/start/device_names.h"
#include "torch/start/home.h"
#include "torch/start/load.h"
#include "torch/start/measure.h"
#include "torch/start/vector_math.h"

namespace innkeeper::torch_layer {
namespace {

// Page-locking memory for a GPU costs about as much as copying it, so with GPUs 1/kKeptHostShare of the
// budget is kept.
constexpr int64_t kKeptHostShare = 16;
// Time for which unused memory stays locked. A training step that takes longer can afford to lock it again.
constexpr std::chrono::seconds kLinger{20};

// Passes charges to the engine once it exists. The simulated accelerators are installed earlier, because the
// engine's devices need their streams.
class LateAccountant final : public Accountant {
 public:
  void set(Accountant* accountant) { accountant_.store(accountant, std::memory_order_release); }
  Status charge(NodeId node, Bytes size) override {
    Accountant* to = accountant_.load(std::memory_order_acquire);
    return to == nullptr ? Status() : to->charge(node, size);
  }
  void uncharge(NodeId node, Bytes size) noexcept override {
    if (Accountant* to = accountant_.load(std::memory_order_acquire)) to->uncharge(node, size);
  }

 private:
  std::atomic<Accountant*> accountant_{nullptr};
};

LateAccountant& late_accountant() {
  static auto& it = *new LateAccountant;
  return it;
}

std::shared_mutex start_mutex;
std::atomic<bool> starting{false};
std::atomic<Runtime*> the_runtime{nullptr};

SwitchSetting& growth_setting() {
  static SwitchSetting it("INNKEEPER_GROWTH");
  return it;
}

SwitchSetting& planning_setting() {
  static SwitchSetting it("INNKEEPER_PLANNING");
  return it;
}

SwitchSetting& recompute_setting() {
  static SwitchSetting it("INNKEEPER_RECOMPUTE");
  return it;
}

// Rows of this process for `innkeeper top`.
std::vector<board::NodeRow> rows(const Engine& engine) {
  std::vector<board::NodeRow> all;
  for (size_t i = 0; i < engine.node_count(); ++i) {
    const NodeId node{static_cast<uint8_t>(i)};
    const NodeStats now = engine.glance(node);
    all.push_back({engine.device(node).name(), Bytes(now.budget), Bytes(now.resident), Bytes(now.peak),
                   now.evictions, now.ops});
  }
  return all;
}

// The nodes of one kind of accelerator, by their index there.
std::vector<ChargedNode> nodes_of(const Backend& backend, const Engine& engine,
                                  const std::vector<NodeBackend>& all) {
  std::vector<ChargedNode> nodes;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].accelerator != &backend) continue;
    const auto index = static_cast<size_t>(all[i].device.index());
    if (nodes.size() <= index) nodes.resize(index + 1);
    const NodeId node{static_cast<uint8_t>(i)};
    nodes[index] = {node, engine.budget(node)};
  }
  return nodes;
}

Status relieve(NodeId node, Bytes size) {
  Runtime* const running = runtime_if_started();
  return running == nullptr ? Status(Code::unavailable, "the runtime is starting")
                            : running->engine().evictor().relieve(node, size);
}

void stop_charging() {
  for (Backend* const backend : backends()) backend->stop_charging();
}

// Makes accelerators charge their allocations from here on. Requires: the runtime has its engine.
void start_charging(const Engine& engine, const std::vector<NodeBackend>& all) {
  try {
    for (Backend* const backend : backends()) {
      const std::vector<ChargedNode> nodes = nodes_of(*backend, engine, all);
      if (nodes.empty()) backend->stop_charging();
      if (!nodes.empty()) backend->start_charging(&late_accountant(), &relieve, nodes, !growth());
    }
  } catch (...) {  // One failed, or lacks memory: nothing may be charged to the engine that ends here.
    late_accountant().set(nullptr);
    stop_charging();
    throw;
  }
}

// Completes the nodes of each kind. parse_nodes() has refused nodes of kinds that this build lacks.
void resolve_accelerators(MachineSpec& spec) {
  for (Backend* const backend : backends())
    if (Status resolved = backend->resolve(spec); !resolved.ok()) throw_status(resolved, "INNKEEPER_NODES");
}

NodeBackend backend_for(Backend& accelerator, const NodeSpec& spec, const AcceleratorNode& made) {
  return {.device = c10::Device(accelerator.type(), static_cast<c10::DeviceIndex>(*spec.index)),
          .key = accelerator.key(),
          .kernel_key = accelerator.kernel_key(),
          .host = false,
          .kind = std::string(accelerator.kind()),
          .capacity = made.capacity,
          .accelerator = &accelerator,
          .kernel_clock = made.kernel_clock};
}

// Options of the host's slabs, which are locked for the accelerators that require it.
Slabs::Options slabs_for(Bytes budget, bool has_data, const std::vector<NodeSpec>& nodes) {
  Slabs::Options slabs{.blank = !has_data};
  slabs.slab = std::min(slabs.slab, budget);
  for (Backend* const backend : backends()) {
    std::vector<c10::DeviceIndex> indices;
    for (const NodeSpec& node : nodes)
      if (node.accelerator == backend->kind()) indices.push_back(static_cast<c10::DeviceIndex>(*node.index));
    std::optional<Slabs::Hooks> hooks;
    if (!indices.empty()) hooks = backend->slab_hooks(indices);
    if (!hooks) continue;
    slabs.hooks = std::move(*hooks);
    slabs.keep = std::max(slabs.keep, Bytes(budget.count() / kKeptHostShare));
    slabs.linger = kLinger;
  }
  return slabs;
}

// Warns about misspelt settings, in one process of a run and in the first of a process group.
void name_wrong_settings() {
  std::vector<std::string> lines = misspelt_settings(environ);
  if (std::string level = wrong_log_level(); !level.empty()) lines.push_back(std::move(level));
  if (lines.empty() || local_rank() > 0 || (is_in_run() && !may_say_once(SaidOnce::settings))) return;
  for (const std::string& line : lines) log(LogLevel::warn, line);
}

// Warns about a program made for CUDA on a machine without a GPU: its user could take the CPU's time for a
// GPU's.
void tell_of_no_gpu(const std::string& text, const MachineSpec& spec) {
  if (!are_devices_called_cuda() || !(text.empty() || text.find("auto") < text.find_first_of(",:"))) return;
  Bytes host;
  for (const NodeSpec& node : spec.nodes) {
    if (node.kind == NodeKind::accelerator) return;
    if (node.kind == NodeKind::host) host = node.budget.value_or(Bytes(0));
  }
  if (!may_say_once(SaidOnce::no_gpu)) return;
  log(LogLevel::warn, "no GPU: cuda is simulated on the CPU with " + to_string(host) +
                          " of host memory (INNKEEPER_NODES names other nodes)");
}

}  // namespace

// The parts of a new machine that may be refused because of the user's settings. They are made before the old
// machine is destroyed.
struct Runtime::Prepared {
  MachineSpec spec;
  bool stress_evict = false;
  bool stress_hash = false;
  bool stress_recompute = false;
  std::unique_ptr<DiskDevice> disk;
};

Runtime::Prepared Runtime::prepare(const std::string& text) {
  static std::once_flag named;
  std::call_once(named, &name_wrong_settings);
  Prepared prepared;
  const char* const said = std::getenv("INNKEEPER_STRESS");
  const std::string stress = said == nullptr ? "" : said;
  prepared.stress_evict = stress == "evict";
  prepared.stress_hash = stress == "hash";
  prepared.stress_recompute = stress == "recompute";
  if (!stress.empty() && !prepared.stress_evict && !prepared.stress_hash && !prepared.stress_recompute) {
    throw_status(Status(Code::invalid_argument,
                        "\"" + stress + "\" is not a stress; expected evict, hash or recompute"),
                 "INNKEEPER_STRESS");
  }
  check_soft_setting();
  check_mixed_setting();
  growth_setting().check();
  planning_setting().check();
  recompute_setting().check();
  check_probe_setting();
  prepared.spec = parse_nodes(text);
  resolve_accelerators(prepared.spec);
  tell_of_no_gpu(text, prepared.spec);
  for (const NodeSpec& node : prepared.spec.nodes) {
    if (node.kind == NodeKind::disk) {
      Result<std::unique_ptr<DiskDevice>> disk = DiskDevice::open(node.path, node.budget.value_or(Bytes(0)));
      // Only this call shows that a directory takes no files (/proc, a lost network): the setting names a
      // wrong directory.
      if (disk.status().code() == Code::io_error)
        throw_status(
            Status(Code::invalid_argument,
                   disk.status().message() + "; expected a directory that takes files, as in disk:/tmp:8GiB"),
            "INNKEEPER_NODES");
      if (!disk.ok()) throw_status(disk.status(), "INNKEEPER_NODES");
      prepared.disk = std::move(disk).value();
    }
  }
  return prepared;
}

Runtime::Runtime(Prepared prepared)
    : stress_evict_(prepared.stress_evict),
      stress_hash_(prepared.stress_hash),
      stress_recompute_(prepared.stress_recompute),
      has_data_(prepared.spec.data) {
  const MachineSpec& spec = prepared.spec;
  for (Backend* const backend : backends()) backend->open(spec, late_accountant());
  const bool any = std::ranges::any_of(
      spec.nodes, [](const NodeSpec& node) { return backend_of(node.accelerator) != nullptr; });

  std::vector<NodeSetup> setups;
  HostNode* locked_host = nullptr;
  for (const NodeSpec& node : spec.nodes) {
    NodeBackend backend;
    NodeSetup setup;
    if (Backend* const accelerator = backend_of(node.accelerator)) {
      AcceleratorNode made = accelerator->make_node(node);
      backend = backend_for(*accelerator, node, made);
      setup = std::move(made.setup);
      setup.computes = true;
      const bool is_priced = backend.kernel_clock != nullptr;
      const auto rates = is_priced ? measured_before(backend) : std::nullopt;
      if (rates) backend.kernel_clock->set_measured(*rates);
      if (rates) setup.speed = measured_speed(setup.speed, *rates);
    }
    setup.budget = node.budget.value_or(Bytes(0));
    if (node.kind == NodeKind::host) {
      Slabs::Options slabs = slabs_for(setup.budget, has_data_, spec.nodes);
      const bool locks = slabs.hooks.lock != nullptr;
      backend.kind = "host";
      backend.capacity = has_data_ ? host_memory_limit() : setup.budget;
      auto host = std::make_unique<HostNode>(node.name, std::move(slabs));
      if (locks) locked_host = host.get();
      setup.device = std::move(host);
      setup.computes = !any;
    }
    if (node.kind == NodeKind::disk) {
      backend.kind = "disk";
      backend.capacity = setup.budget;
      setup.device = std::move(prepared.disk);
    }
    backends_.push_back(std::move(backend));
    setups.push_back(std::move(setup));
  }
  engine_ = std::make_unique<Engine>(std::move(setups), make_reuse_distance_policy());
  engine_->plans().set_planning(planning());
  engine_->plans().plan_in_background();
  engine_->plans().set_recompute(recompute() || stress_recompute_);
  engine_->set_observers({.memory = &memory_changed,
                          .escapes = &is_held_elsewhere,
                          .copies = &record_copy,
                          .recorded_calls = &recorded_call_of});
  late_accountant().set(&engine_->evictor());
  start_charging(*engine_, backends_);
  install_heap_reserve();
  engine_->mover().thread().start();
  settle_vector_math();
  publisher_ = std::make_unique<board::Publisher>([this] { return rows(*engine_); });
  // Not while a graph is captured: unlocking memory would end the capture, as any call of another thread
  // would.
  const auto tidy = [locked_host] {
    if (!is_any_captured()) locked_host->tidy();
  };
  if (locked_host != nullptr)
    tidier_ = std::make_unique<Repeat>(tidy, kLinger / 2, "host memory stays locked");
}

NodeId Runtime::node_of(c10::Device device) const {
  for (size_t i = 0; i < backends_.size(); ++i) {
    if (backends_[i].kind != "disk" && backends_[i].device == device) return NodeId{static_cast<uint8_t>(i)};
  }
  return kNoNode;
}

// The runtime outlives the program's static objects; its file must not outlive the program.
static void stop_background_at_exit() {
  static const int registered = std::atexit([] {
    if (Runtime* running = runtime_if_started()) running->stop_background();
  });
  (void)registered;
}

Runtime* runtime_if_started() { return the_runtime.load(std::memory_order_acquire); }

bool runtime_is_there() { return runtime_if_started() != nullptr || starting.load(); }
void forget_runtime_in_child() { the_runtime.store(nullptr, std::memory_order_release); }

namespace {

// Holds the lock under which the runtime is started or replaced. If another thread forks meanwhile, the child
// knows that a start was in progress.
class Starting {
 public:
  Starting() : lock_(start_mutex) { starting.store(true); }
  ~Starting() { starting.store(false); }
  Starting(const Starting&) = delete;
  Starting& operator=(const Starting&) = delete;

 private:
  const std::unique_lock<std::shared_mutex> lock_;
};

}  // namespace

Runtime& runtime() {
  if (Runtime* running = runtime_if_started()) [[likely]]
    return *running;
  refuse_in_forked_child();
  watch_forks();
  const Starting start;
  if (Runtime* running = runtime_if_started()) return *running;
  the_runtime.store(new Runtime(Runtime::prepare(nodes_setting())), std::memory_order_release);
  stop_background_at_exit();
  return *runtime_if_started();
}

KeptRuntime::KeptRuntime() : running_(nullptr) {
  while (running_ == nullptr) {
    (void)runtime();
    lock_ = std::shared_lock(start_mutex);
    running_ = runtime_if_started();
    if (running_ == nullptr) lock_.unlock();
  }
}

// Throws while memory belongs to the machine but to no block any more: memory that an operator or resident()
// exposed, and that its holder has kept.
static void refuse_while_memory_is_held(Engine& engine) {
  throw_if_error(engine.synchronize(), "configure");
  for (size_t i = 0; i < engine.node_count(); ++i) {
    const Device& device = engine.device(NodeId{static_cast<uint8_t>(i)});
    if (device.live() != Bytes(0))
      for (Backend* const backend : backends()) backend->free_workspaces();
    if (device.live() == Bytes(0)) continue;
    throw_status(Status(Code::invalid_argument,
                        to_string(device.live()) + " of " + device.name() +
                            " are still held by somebody whom an operator or resident() lent them; configure "
                            "the nodes when that is gone"),
                 "configure");
  }
}

void configure(const std::string& nodes) {
  load();
  refuse_in_forked_child();
  watch_forks();
  const Starting start;
  Runtime* const running = runtime_if_started();
  if (running == nullptr) {
    (void)parse_nodes(nodes);  // An invalid setting changes nothing.
    exchange_configured_nodes(nodes);
    forget_device_count();
    the_runtime.store(new Runtime(Runtime::prepare(nodes)), std::memory_order_release);
    stop_background_at_exit();
    return;
  }
  forget_empty_block();
  forget_moved_copies();
  if (const size_t alive = running->engine().table().block_count(); alive != 0) {
    throw_status(Status(Code::invalid_argument, std::to_string(alive) +
                                                    " managed storages are alive; configure the nodes before "
                                                    "the first tensor, or after the last is gone"),
                 "configure");
  }
  refuse_while_memory_is_held(running->engine());
  Runtime::Prepared prepared = Runtime::prepare(nodes);
  late_accountant().set(nullptr);
  the_runtime.store(nullptr, std::memory_order_release);
  delete running;
  forget_homes();
  forget_device_count();
  const std::string before = exchange_configured_nodes(nodes);
  try {
    the_runtime.store(new Runtime(std::move(prepared)), std::memory_order_release);
  } catch (...) {
    exchange_configured_nodes(before);  // The next use starts the previous machine again.
    throw;
  }
}

void start() {
  load();
  (void)runtime();
}

bool soft_placement() { return is_soft(); }

void set_soft_placement(bool soft) { set_soft(soft); }

bool growth() { return growth_setting().get(); }

void set_growth(bool growth) { growth_setting().set(growth); }

bool planning() { return planning_setting().get(); }

void set_planning(bool planning) {
  planning_setting().set(planning);
  if (Runtime* running = runtime_if_started()) running->engine().plans().set_planning(planning);
}

bool recompute() { return recompute_setting().get(); }

void set_recompute(bool recompute) {
  recompute_setting().set(recompute);
  if (Runtime* running = runtime_if_started()) running->engine().plans().set_recompute(recompute);
}

bool started() { return runtime_if_started() != nullptr; }

}  // namespace innkeeper::torch_layer
