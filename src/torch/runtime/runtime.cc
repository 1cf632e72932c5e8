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
#include "torch/accelerator/c10_device.h"
#include "torch/errors.h"
#include "torch/memory/cpu_allocator.h"
#include "torch/memory/moved_copies.h"
#include "torch/memory/real_memory.h"
#include "torch/operator/fallback.h"
#include "torch/operator/kept_call.h"
#include "torch/operator/mixed_move.h"
#include "torch/operator/soft_placement.h"
#include "torch/runtime/copy_events.h"
#include "torch/runtime/device_names.h"
#include "torch/runtime/fork.h"
#include "torch/runtime/home.h"
#include "torch/runtime/load.h"
#include "torch/runtime/measure.h"
#include "torch/runtime/nodes_setting.h"
#include "torch/runtime/runtime_state.h"
#include "torch/runtime/switch_setting.h"
#include "torch/runtime/vector_math.h"
#include "torch/sim/sim_backend.h"
#ifdef INNKEEPER_WITH_CUDA
#include "torch/cuda/cuda_backend.h"
#endif

namespace innkeeper::torch_layer {
namespace {

// Locking pages for a card costs about as much as copying them: with cards more of them is kept.
[[maybe_unused]] constexpr int64_t kKeptHostShare = 16;
// Steps that take longer than this are long enough to lock it again.
[[maybe_unused]] constexpr std::chrono::seconds kLinger{20};

// The simulated accelerators are installed before the engine exists, because its devices need their streams.
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

// What innkeeper top shows of this process.
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

#ifdef INNKEEPER_WITH_CUDA

Status resolve_cards(MachineSpec& spec) { return cuda_backend::resolve(spec); }

NodeBackend card_backend(c10::DeviceIndex index) {
  return {c10::Device(c10::kCUDA, index), c10::DispatchKey::CUDA, false, "cuda",
          cuda_backend::capacity(index)};
}

std::unique_ptr<Device> card_device(const std::string& name, const NodeBackend& backend) {
  return std::make_unique<C10Device>(
      name, backend.device, backend.key,
      [index = backend.device.index()] { return cuda_backend::live(index); },
      cuda_backend::make_memory_order(backend.device.index()));
}

// From here on cards charge what they allocate; the runtime must have its engine.
void install_cards(Engine& engine, const std::vector<NodeBackend>& backends) {
  std::vector<NodeId> nodes;
  for (size_t i = 0; i < backends.size(); ++i) {
    if (backends[i].kind != "cuda") continue;
    const auto index = static_cast<size_t>(backends[i].device.index());
    if (nodes.size() <= index) nodes.resize(index + 1, kNoNode);
    nodes[index] = NodeId{static_cast<uint8_t>(i)};
  }
  if (nodes.empty()) return cuda_backend::remove();
  const auto relief = [](NodeId node, Bytes size) {
    Runtime* running = runtime_if_started();
    return running == nullptr ? Status(Code::unavailable, "the runtime is starting")
                              : running->engine().relieve(node, size);
  };
  cuda_backend::install(&late_accountant(), relief, nodes);
  for (size_t index = 0; index < nodes.size(); ++index) {
    if (nodes[index] == kNoNode) continue;
    const auto card = static_cast<c10::DeviceIndex>(index);
    cuda_backend::limit(card, engine.budget(nodes[index]));
    if (!growth()) cuda_backend::take(card, engine.budget(nodes[index]));
  }
}

#else

Status resolve_cards(MachineSpec&) { return {}; }  // parse_nodes() has refused them

#endif

// By one process of a run, and by the first of a process group.
void name_wrong_settings() {
  std::vector<std::string> lines = misspelt_settings(environ);
  if (std::string level = wrong_log_level(); !level.empty()) lines.push_back(std::move(level));
  if (lines.empty() || local_rank() > 0 || (is_in_run() && !may_say_once(SaidOnce::settings))) return;
  for (const std::string& line : lines) log(LogLevel::warn, line);
}

// Who runs a program made for CUDA on a machine without a GPU would take the CPU's time for a GPU's.
void tell_of_no_gpu(const std::string& text, const MachineSpec& spec) {
  if (!are_devices_called_cuda() || !(text.empty() || text.find("auto") < text.find_first_of(",:"))) return;
  Bytes host;
  for (const NodeSpec& node : spec.nodes) {
    if (node.make == NodeMake::cuda || node.make == NodeMake::sim) return;
    if (node.make == NodeMake::host) host = node.budget.value_or(Bytes(0));
  }
  if (!may_say_once(SaidOnce::no_gpu)) return;
  log(LogLevel::warn, "no GPU: cuda is simulated on the CPU with " + to_string(host) +
                          " of host memory (INNKEEPER_NODES names other nodes)");
}

}  // namespace

// All of a new machine that may be refused, made before the old one goes.
struct Runtime::Prepared {
  MachineSpec spec;
  bool stress_evict = false;
  bool stress_hash = false;
  bool stress_recompute = false;
  std::vector<std::shared_ptr<sim::Accelerator>> accelerators;
  std::vector<NodeId> accelerator_nodes;
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
  if (Status resolved = resolve_cards(prepared.spec); !resolved.ok())
    throw_status(resolved, "INNKEEPER_NODES");
  tell_of_no_gpu(text, prepared.spec);
  for (size_t i = 0; i < prepared.spec.nodes.size(); ++i) {
    const NodeSpec& node = prepared.spec.nodes[i];
    if (node.make == NodeMake::sim) {
      prepared.accelerators.push_back(std::make_shared<sim::Accelerator>(node.sim));
      prepared.accelerator_nodes.push_back(NodeId{static_cast<uint8_t>(i)});
    } else if (node.make == NodeMake::disk) {
      Result<std::unique_ptr<DiskDevice>> disk = DiskDevice::open(node.path, node.budget.value_or(Bytes(0)));
      // That a folder takes no file (/proc, a network that is gone) shows only here: it is the wrong folder.
      if (disk.status().code() == Code::io_error)
        throw_status(
            Status(Code::invalid_argument,
                   disk.status().message() + "; expected a folder that takes files, as in disk:/tmp:8GiB"),
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
  std::vector<c10::DeviceIndex> cards;
  for (const NodeSpec& node : spec.nodes)
    if (node.make == NodeMake::cuda) cards.push_back(static_cast<c10::DeviceIndex>(*node.index));
  const auto& accelerators = prepared.accelerators;
  if (!accelerators.empty() || sim_backend::count() != 0) {
    sim_backend::install(accelerators, &late_accountant(), prepared.accelerator_nodes);
  }

  std::vector<NodeSetup> setups;
  [[maybe_unused]] HostNode* host = nullptr;
  for (const NodeSpec& node : spec.nodes) {
    NodeBackend backend;
    NodeSetup setup;
    setup.budget = node.budget.value_or(Bytes(0));
    switch (node.make) {
      case NodeMake::sim: {
        const auto index = static_cast<c10::DeviceIndex>(*node.index);
        std::shared_ptr<sim::Accelerator> accelerator = accelerators[static_cast<size_t>(index)];
        backend = {c10::Device(c10::kHPU, index), c10::DispatchKey::HPU, false, "sim", setup.budget};
        setup.device = std::make_unique<C10Device>(
            node.name, backend.device, backend.key, [accelerator] { return accelerator->live(); },
            sim_backend::make_memory_order(accelerator));
        setup.computes = true;
        if (const sim::Options& options = accelerator->options(); options.times_hidden) {
          setup.speed = {options.gpu.bytes(), options.host_link.bandwidth};
          backend.kernel_clock = std::make_shared<KernelClock>(options.gpu);
          setup.time = [accelerator, kernels = backend.kernel_clock] {
            return ComputeTime{accelerator->time(0), kernels->seconds(), accelerator->host_time()};
          };
        } else {
          setup.speed = {accelerator->gpu().bytes(), accelerator->host_link().bandwidth};
          setup.time = [accelerator] {
            return ComputeTime{accelerator->time(0), accelerator->busy(0), accelerator->host_time()};
          };
        }
        break;
      }
      case NodeMake::host: {
        Slabs::Options slabs{.blank = !has_data_};
        slabs.slab = std::min(slabs.slab, setup.budget);
#ifdef INNKEEPER_WITH_CUDA
        if (!cards.empty()) {
          slabs.hooks = cuda_backend::slab_hooks(cards);
          slabs.keep = std::max(slabs.keep, Bytes(setup.budget.count() / kKeptHostShare));
          slabs.linger = kLinger;
        }
#endif
        backend = {c10::Device(c10::kCPU), c10::DispatchKey::CPU, true, "host",
                   has_data_ ? host_memory_limit() : setup.budget};
        auto node_of_host = std::make_unique<HostNode>(node.name, std::move(slabs));
        host = node_of_host.get();
        setup.device = std::move(node_of_host);
        setup.computes = accelerators.empty() && cards.empty();
        break;
      }
      case NodeMake::disk: {
        backend.kind = "disk";
        backend.capacity = setup.budget;
        setup.device = std::move(prepared.disk);
        break;
      }
      case NodeMake::cuda: {
#ifdef INNKEEPER_WITH_CUDA
        backend = card_backend(static_cast<c10::DeviceIndex>(*node.index));
        setup.device = card_device(node.name, backend);
        const cost::GpuModel gpu = cuda_backend::model(backend.device.index());
        setup.speed = cuda_backend::speed(backend.device.index(), gpu);
        backend.kernel_clock = std::make_shared<KernelClock>(gpu);
        if (const std::optional<cost::Measured> rates = measured_before(backend.device.index())) {
          backend.kernel_clock->set_measured(*rates);
          setup.speed = measured_speed(setup.speed, *rates);
        }
        // The host's clock, since the GPU's is not read: over a period both advance as far.
        setup.time = [kernels = backend.kernel_clock] {
          const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
          return ComputeTime{now.count(), kernels->seconds(), now.count()};
        };
        setup.computes = true;
#endif
        break;
      }
    }
    backends_.push_back(std::move(backend));
    setups.push_back(std::move(setup));
  }
  engine_ = std::make_unique<Engine>(std::move(setups), make_returns_policy());
  engine_->set_planning(planning());
  engine_->plan_aside();
  engine_->set_recompute(recompute() || stress_recompute_);
  engine_->set_cookbook(&recipe_of);
  engine_->set_memory_observer(&memory_changed);
  engine_->set_escape_probe(&is_held_elsewhere);
  engine_->set_copy_watch(&record_copy);
  late_accountant().set(engine_.get());
#ifdef INNKEEPER_WITH_CUDA
  try {
    install_cards(*engine_, backends_);
  } catch (...) {  // a card failed, or has less than is to be taken: nothing may be charged to what ends here
    late_accountant().set(nullptr);
    cuda_backend::remove();
    throw;
  }
#endif
  install_heap_reserve();
  engine_->start_helper();
  settle_vector_math();
  publisher_ = std::make_unique<board::Publisher>([this] { return rows(*engine_); });
#ifdef INNKEEPER_WITH_CUDA
  // Not while a graph is captured: to unlock memory would end that, as any call of a thread of ours.
  const auto tidy = [host] {
    if (!cuda_backend::is_any_captured()) host->tidy();
  };
  if (!cards.empty() && host != nullptr)
    tidier_ = std::make_unique<Repeat>(tidy, kLinger / 2, "host memory stays locked");
#endif
}

NodeId Runtime::node_of(c10::Device device) const {
  for (size_t i = 0; i < backends_.size(); ++i) {
    if (backends_[i].kind != "disk" && backends_[i].device == device) return NodeId{static_cast<uint8_t>(i)};
  }
  return kNoNode;
}

// The runtime outlives the program's static objects; its file should not outlive the program.
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

// Holds the lock under which the runtime is started or replaced. A child that is forked meanwhile by another
// thread knows.
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

// Memory that belongs to a machine but to no block any more: what was lent out by an operator or by
// resident(), and has kept.
static void refuse_while_memory_is_held(Engine& engine) {
  throw_if_error(engine.synchronize(), "configure");
  for (size_t i = 0; i < engine.node_count(); ++i) {
    const Device& device = engine.device(NodeId{static_cast<uint8_t>(i)});
#ifdef INNKEEPER_WITH_CUDA
    if (device.live() != Bytes(0)) cuda_backend::free_workspaces();
#endif
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
    (void)parse_nodes(nodes);  // a bad setting changes nothing
    exchange_configured_nodes(nodes);
    forget_device_count();
    the_runtime.store(new Runtime(Runtime::prepare(nodes)), std::memory_order_release);
    stop_background_at_exit();
    return;
  }
  forget_empty_block();
  forget_moved_copies();
  if (const size_t alive = running->engine().block_count(); alive != 0) {
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
    exchange_configured_nodes(before);  // the next use starts the machine that was
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
  if (Runtime* running = runtime_if_started()) running->engine().set_planning(planning);
}

bool recompute() { return recompute_setting().get(); }

void set_recompute(bool recompute) {
  recompute_setting().set(recompute);
  if (Runtime* running = runtime_if_started()) running->engine().set_recompute(recompute);
}

bool started() { return runtime_if_started() != nullptr; }

}  // namespace innkeeper::torch_layer
