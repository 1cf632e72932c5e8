// The verbs of the public interface on tensors, nodes and statistics (runtime.h).
#include <c10/core/InferenceMode.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "innkeeper/torch/runtime.h"
#include "torch/accelerator/backend.h"
#include "torch/accelerator/compute_queue.h"
#include "torch/errors.h"
#include "torch/memory/handle.h"
#include "torch/memory/index_memory.h"
#include "torch/memory/moved_copies.h"
#include "torch/memory/real_memory.h"
#include "torch/operator/mixed_move.h"
#include "torch/operator/operator_call.h"
#include "torch/process/fork.h"
#include "torch/process/runtime_state.h"
#include "torch/registry/repeated_bits.h"
#include "torch/start/home.h"
#include "trace/recorder.h"

namespace innkeeper::torch_layer {

NodeId node_named(const std::string& name, const char* what) {
  Engine& engine = runtime().engine();
  const NodeId node = engine.table().find_node(name);
  if (node != kNoNode) return node;
  std::string known;
  for (size_t i = 0; i < engine.node_count(); ++i) {
    known += (i == 0 ? "" : ", ") + engine.device(NodeId{static_cast<uint8_t>(i)}).name();
  }
  throw_status(Status(Code::invalid_argument, "there is no node \"" + name + "\"; the nodes are " + known),
               what);
}

namespace {

Block& block_for(const at::Tensor& x, const char* what) {
  TORCH_CHECK_TYPE(x.defined() && x.device().type() == kManagedType, what,
                   ": expected a tensor on managed, got one on ",
                   x.defined() ? x.device().str() : std::string("nothing"));
  TORCH_CHECK_TYPE(x.layout() == at::kStrided, what,
                   ": a sparse tensor's bytes are those of its indices and values; name these");
  TORCH_CHECK_TYPE(is_managed(x) && x.has_storage(), what,
                   ": a fake tensor, or one inside a functional transform, has no bytes of its own");
  return *block_of(x);
}

// The block of a tensor that a kernel can be given.
Block& plain_block_for(const at::Tensor& x, const char* what) {
  Block& block = block_for(x, what);
  TORCH_CHECK_TYPE(!x.is_nested(), what, ": a nested tensor's bytes are those of x.values(); name these");
  TORCH_CHECK_TYPE(!x.is_quantized(), what,
                   ": kernels know no managed quantized tensor; x.int_repr() is one of its "
                   "integers");
  return block;
}

// The given node; else the computing node that holds the block; else the thread's preferred node.
NodeId node_for(Block& block, const std::optional<std::string>& node, const char* what) {
  if (node.has_value()) return node_named(*node, what);
  Access access{&block, false, false};
  return runtime().engine().place(std::span(&access, 1), home_node());
}

trace::Recorder recorder() { return trace::Recorder(runtime().engine().plans().stream()); }

}  // namespace

std::vector<NodeInfo> nodes() {
  const KeptRuntime machine;
  Engine& engine = machine->engine();
  std::vector<NodeInfo> rows;
  for (size_t i = 0; i < engine.node_count(); ++i) {
    const NodeId node{static_cast<uint8_t>(i)};
    const auto& computing = engine.computing_nodes();
    rows.push_back({engine.device(node).name(), machine->backend(node).kind, engine.budget(node).count(),
                    machine->backend(node).capacity.count(),
                    std::find(computing.begin(), computing.end(), node) != computing.end(),
                    machine->backend(node).kernel_key == c10::DispatchKey::CPU});
  }
  return rows;
}

std::string describe(const NodeInfo& node) {
  std::string text = node.name + ": " + to_string(Bytes(node.budget));
  if (node.capacity != node.budget) text += " of " + to_string(Bytes(node.capacity));
  return text + (node.computes ? ", computes" : "");
}

void set_budget(const std::string& node, int64_t bytes) {
  const KeptRuntime machine;
  const NodeId id = node_named(node, "set_budget");
  const Bytes capacity = machine->backend(id).capacity;
  if (Bytes(bytes) > capacity) {
    throw_status(Status(Code::invalid_argument, to_string(Bytes(bytes)) + " is more than the " +
                                                    to_string(capacity) + " that " + node + " has"),
                 "set_budget");
  }
  throw_if_error(machine->engine().set_budget(id, Bytes(bytes)), "set_budget");
  const NodeBackend& backend = machine->backend(id);
  if (backend.accelerator != nullptr) backend.accelerator->limit(backend.device.index(), Bytes(bytes));
}

Stats stats() {
  forget_copies_of_dead_tensors();
  const KeptRuntime machine;
  Stats stats = machine->engine().stats();
  stats.moved_from_cpu = bytes_moved_from_cpu();
  stats.other_bits = kinds_with_other_bits();
  for (const NodeId node : machine->engine().computing_nodes()) {
    const NodeBackend& backend = machine->backend(node);
    if (backend.accelerator == nullptr) continue;
    const std::optional<double> time = backend.accelerator->time(backend.device.index());
    stats.simulated_seconds = std::max(stats.simulated_seconds, time.value_or(0));
  }
  return stats;
}

std::vector<BlockMoves> planned_moves() { return KeptRuntime()->engine().plans().planned_moves(); }

uint64_t block_number(const at::Tensor& x) {
  return static_cast<uint64_t>(block_for(x, "block_number").id());
}

void reset_stats() {
  KeptRuntime()->engine().reset_stats();
  reset_bytes_moved_from_cpu();
}

std::string check_invariants() { return KeptRuntime()->engine().check_invariants(); }

std::vector<std::string> where(const at::Tensor& x) {
  Engine& engine = runtime().engine();
  std::vector<std::string> names;
  for (const NodeId node : engine.requests().where(block_for(x, "where")))
    names.push_back(engine.device(node).name());
  return names;
}

void pin(const at::Tensor& x, const std::optional<std::string>& node) {
  Block& block = block_for(x, "pin");
  if (block.size() == Bytes(0)) return;
  throw_if_error(runtime().engine().requests().pin(block, node_for(block, node, "pin")), "pin");
}

void unpin(const at::Tensor& x) { runtime().engine().requests().unpin(block_for(x, "unpin")); }

bool is_user_pinned(const at::Tensor& x) {
  return runtime().engine().requests().is_pinned(block_for(x, "is_pinned"));
}

void prefetch(const at::Tensor& x, const std::string& node) {
  throw_if_error(
      runtime().engine().requests().prefetch(block_for(x, "prefetch"), node_named(node, "prefetch")),
      "prefetch");
}

void set_replicated(const at::Tensor& x, bool replicated) {
  block_for(x, "set_replicated").replicated.store(replicated, std::memory_order_relaxed);
}

void evict(const at::Tensor& x) {
  throw_if_error(runtime().engine().requests().evict(block_for(x, "evict")), "evict");
}

Resident::Resident(const at::Tensor& managed, const std::optional<std::string>& node, bool write)
    : handle_((plain_block_for(managed, "resident"), managed.storage())), write_(write) {
  Runtime& machine = runtime();
  Block& block = *block_of(managed);
  const NodeId id = node_for(block, node, "resident");
  node_ = machine.engine().device(id).name();
  if (machine.backend(id).kind == "disk") {
    throw_status(Status(Code::invalid_argument, "a disk node has no tensors"), "resident");
  }
  if (write && machine.backend(id).host && !machine.has_data()) {
    throw_status(
        Status(Code::invalid_argument, "the host has no memory to write to while INNKEEPER_SIM has data off"),
        "resident");
  }
  if (block.size() != Bytes(0)) {
    if (!machine.backend(id).host) order_compute_queue_after_program(machine.backend(id).device);
    throw_if_error(machine.engine().requests().hold(block, id, write), "resident");
    held_ = true;
  }
  try {
    if (held_ && !machine.backend(id).host) order_program_after_compute_queue(machine.backend(id).device);
    const c10::TensorImpl& impl = *managed.unsafeGetTensorImpl();
    real_ = real_tensor(machine, impl, *impl.storage().unsafeGetStorageImpl(), block, id,
                        c10::InferenceMode::is_enabled());
  } catch (...) {
    leave();
    throw;
  }
}

Resident::~Resident() {
  try {
    leave();
  } catch (const std::exception&) {  // The device failed; its next use reports the error.
  }
}

void Resident::leave() {
  real_.reset();
  // In a child of fork(), the pin is the parent's.
  if (!std::exchange(held_, false) || is_forked_child()) return;
  Runtime& machine = runtime();
  Block& block = *block_of(*handle_.unsafeGetStorageImpl());
  const NodeId id = node_named(node_, "resident");
  const auto let_go = c10::make_scope_exit([&] {
    Access access = machine.engine().release_hold(block, id);
    if (is_held_elsewhere(block, id)) machine.engine().keep_escaped(id, access);  // I12
    machine.engine().release(id, std::span(&access, 1));
  });
  if (!machine.backend(id).host) order_compute_queue_after_program(machine.backend(id).device);
  if (write_) adopt_resize(machine, *handle_.unsafeGetStorageImpl(), block, id, true);
}

void synchronize() {
  refuse_in_forked_child();
  if (Runtime* machine = runtime_if_started()) throw_if_error(machine->engine().synchronize(), "synchronize");
}

int64_t empty_cache() {
  refuse_in_forked_child();
  forget_moved_copies();
  note_empty_cache();
  Runtime* machine = runtime_if_started();
  return machine == nullptr ? 0 : machine->engine().trim().count();
}

bool is_bad_fork() { return is_forked_child(); }

void log_moves(bool on) { set_log_level(on ? LogLevel::info : LogLevel::warn); }

void trace_start() { recorder().start(1 << 22); }
void trace_mark(const std::string& text) { recorder().mark(text); }
std::string trace_stop() { return recorder().stop(); }

}  // namespace innkeeper::torch_layer
