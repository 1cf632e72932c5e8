#include "torch/start/home.h"

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "innkeeper/torch/runtime.h"
#include "torch/errors.h"
#include "torch/memory/device_index.h"
#include "torch/process/fork.h"
#include "torch/process/runtime_state.h"
#include "torch/process/thread_context.h"
#include "torch/random/random_stream.h"

namespace innkeeper::torch_layer {
namespace {

std::array<std::atomic<int>, kMaxNodes> homes{};
// Bytes of memory that the experiments at each node have declared.
std::array<std::atomic<int64_t>, kMaxNodes> promised{};
std::atomic<uint64_t> machine{1};  // Number of configure() calls, from 1; outdates earlier Homes.

// A share in the count of homes, returned by the destructor.
class Home {
 public:
  Home() = default;
  explicit Home(NodeId node, Bytes needed = Bytes(0))
      : node_(node), needed_(needed), machine_(machine.load()) {
    homes[index_of(node)].fetch_add(1);
    promised[index_of(node)].fetch_add(needed.count());
  }
  Home(Home&& other) noexcept { swap(other); }
  Home& operator=(Home&& other) noexcept {
    Home(std::move(other)).swap(*this);
    return *this;
  }
  ~Home() {
    if (!valid()) return;
    homes[index_of(node_)].fetch_sub(1);
    promised[index_of(node_)].fetch_sub(needed_.count());
  }
  Home(const Home&) = delete;
  Home& operator=(const Home&) = delete;
  bool valid() const { return node_ != kNoNode && machine_ == machine.load(std::memory_order_relaxed); }
  NodeId node() const { return node_; }
  // The value for threads that act for this one; 0 is none.
  uint64_t packed() const { return node_ == kNoNode ? 0 : machine_ << 8 | index_of(node_); }
  static NodeId unpack(uint64_t packed) {
    return packed >> 8 == machine.load(std::memory_order_relaxed) ? NodeId{static_cast<uint8_t>(packed)}
                                                                  : kNoNode;
  }

 private:
  void swap(Home& other) noexcept {
    std::swap(node_, other.node_);
    std::swap(needed_, other.needed_);
    std::swap(machine_, other.machine_);
  }
  NodeId node_ = kNoNode;
  Bytes needed_{0};
  uint64_t machine_ = 0;
};

// The thread's state outside of an experiment, kept while it runs.
struct Outer {
  int64_t token;
  c10::DeviceIndex device_index;
  Home home;
  std::shared_ptr<RandomStream> stream;
};

thread_local Home thread_home;
thread_local std::vector<Outer> experiments;
std::atomic<int64_t> next_token{1};

NodeId least_loaded(Bytes needed) {
  Engine& engine = runtime().engine();
  // Processes of one machine prefer one node each.
  const std::vector<NodeId>& computing = engine.computing_nodes();
  if (local_rank() >= 0 && needed == Bytes(0))
    return computing[static_cast<size_t>(local_rank()) % computing.size()];
  NodeId best = kNoNode;
  const auto better = [&](NodeId a, NodeId b) {
    const Bytes a_left = engine.budget(a) - Bytes(promised[index_of(a)].load());
    const Bytes b_left = engine.budget(b) - Bytes(promised[index_of(b)].load());
    if ((a_left >= needed) != (b_left >= needed)) return a_left >= needed;
    if (needed > Bytes(0) && a_left < needed) return a_left > b_left;
    const int a_homes = homes[index_of(a)].load();
    const int b_homes = homes[index_of(b)].load();
    if (a_homes != b_homes) return a_homes < b_homes;
    return engine.free(a) > engine.free(b);
  };
  for (const NodeId node : engine.computing_nodes()) {
    if (best == kNoNode || better(node, best)) best = node;
  }
  return best;
}

void move_home(Home home) {
  thread_home = std::move(home);
  if (thread_home.valid()) exchange_index(index_of_node(thread_home.node()));
  own_context().home.store(thread_home.packed(), std::memory_order_relaxed);
}

}  // namespace

NodeId home_node() {
  if (const NodeId own = node_at(current_index()); own != kNoNode) return own;
  if (const ThreadContext* caller = callers_context()) {
    const NodeId node = Home::unpack(caller->home.load(std::memory_order_relaxed));
    if (node != kNoNode) return node;
  }
  if (!thread_home.valid()) [[unlikely]]
    move_home(Home(least_loaded(Bytes(0))));
  return thread_home.node();
}

NodeId exchange_home(NodeId node) {
  const NodeId current = node_at(current_index());
  const NodeId before = current != kNoNode ? current : thread_home.valid() ? thread_home.node() : kNoNode;
  move_home(node == kNoNode ? Home() : Home(node));
  return before;
}

int homes_at(NodeId node) { return homes[index_of(node)].load(); }

void forget_homes() {
  machine.fetch_add(1);
  for (auto& count : homes) count.store(0);
  for (auto& bytes : promised) bytes.store(0);
}

// ---------------------------------------------------------------- runtime.h

std::string home() { return runtime().engine().device(home_node()).name(); }

std::string set_home(const std::string& node) {
  if (is_forked_child()) return {};  // The parent entered the context that ends here.
  const NodeId wanted = node.empty() ? kNoNode : node_named(node, "on");
  if (wanted != kNoNode) {
    const auto& computing = runtime().engine().computing_nodes();
    if (std::find(computing.begin(), computing.end(), wanted) == computing.end()) {
      throw_status(
          Status(Code::invalid_argument, "no operator runs at \"" + node + "\" in this configuration"), "on");
    }
  }
  const NodeId before = exchange_home(wanted);
  return before == kNoNode ? std::string() : runtime().engine().device(before).name();
}

std::string find_device(int64_t nbytes, bool disperse) {
  Engine& engine = runtime().engine();
  NodeId best = kNoNode;
  if (disperse) {
    best = least_loaded(Bytes(nbytes));
  } else {
    for (const NodeId node : engine.computing_nodes()) {
      if (best == kNoNode || engine.free(node) > engine.free(best)) best = node;
    }
  }
  return engine.device(best).name();
}

int64_t enter_experiment(const std::string& name, std::optional<int64_t> memory) {
  if (memory.has_value() && *memory <= 0) {
    throw_status(Status(Code::invalid_argument,
                        "memory is a positive number of bytes; got " + std::to_string(*memory)),
                 "experiment \"" + name + "\"");
  }
  const int64_t token = next_token.fetch_add(1);
  const c10::DeviceIndex outer_index = current_index();
  Home outer = std::exchange(thread_home, Home());
  const Bytes needed(memory.value_or(0));
  move_home(Home(least_loaded(needed), needed));
  experiments.push_back(
      {token, outer_index, std::move(outer), exchange_stream(std::make_shared<RandomStream>(0))});
  return token;
}

void leave_experiment(int64_t token) {
  if (experiments.empty() || experiments.back().token != token) {
    throw_status(Status(Code::invalid_argument,
                        "experiments are left in the order in which they were entered, each by "
                        "the thread that entered it"),
                 "experiment");
  }
  Outer outer = std::move(experiments.back());
  experiments.pop_back();
  move_home(std::move(outer.home));
  exchange_index(outer.device_index);
  exchange_stream(std::move(outer.stream));
}

}  // namespace innkeeper::torch_layer
