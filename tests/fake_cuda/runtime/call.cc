#include "runtime/call.h"

#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "runtime/report.h"
#include "runtime/settings.h"

namespace fake_cuda {
namespace {

struct Order {
  std::string name;
  long skip;
  Error error;
  Effect effect;
};

struct State {
  std::vector<Order> orders;
  std::string failed;
  long calls = 0;
  pid_t started_in = 0;  // Process that made the first call.
  bool over = false;     // The process's end has begun.
};
State& state() {
  static auto& it = *new State;
  return it;
}

// The real runtime ends in an exit handler that it installs when it starts: later callers find it gone.
void start() {
  state().started_in = getpid();
  std::atexit([] { state().over = true; });
}

Error ordered(const char* name, bool by_name_alone) {
  for (size_t i = 0; i < state().orders.size(); ++i) {
    Order& order = state().orders[i];
    if (order.name.empty() ? by_name_alone : order.name != name) continue;
    if (order.skip-- > 0) continue;
    const Order due = order;
    state().orders.erase(state().orders.begin() + static_cast<long>(i));
    state().failed = name;
    if (due.effect != Effect::once && is_gpu(current_gpu())) break_gpu(current_gpu(), due.error);
    return due.error;
  }
  return kSuccess;
}

}  // namespace

void order_failure(const char* name, long skip, Error error, Effect effect) {
  state().orders.push_back({name, skip, error, effect});
}
void cancel_failures() { state().orders.clear(); }
long failures_left() { return static_cast<long>(state().orders.size()); }
std::string failed_call() { return state().failed; }
void forget_failed_call() { state().failed.clear(); }
long calls() { return state().calls; }

Error& last_error() {
  thread_local Error error = kSuccess;
  return error;
}

Error begin_call(const char* name, Needs needs) {
  if (tracing()) say("%s (GPU %d)", name, current_gpu());
  if (needs == Needs::nothing) return kSuccess;
  if (state().started_in == 0) start();
  if (state().started_in != getpid()) {
    violation("%s in a child of the process that started CUDA", name);
    return kInitialization;
  }
  if (state().over) {
    if (needs == Needs::gpu) violation("%s after the runtime has gone", name);
    return kUnloading;
  }
  if (settings().driver < kVersion) return kInsufficientDriver;
  if (needs != Needs::choice) ++state().calls;
  if (Error error = ordered(name, needs == Needs::choice)) return error;
  if (needs != Needs::gpu) return kSuccess;
  if (!is_gpu(current_gpu())) return gpus().empty() ? kNoDevice : kInvalidDevice;
  return gpu(current_gpu()).broken;
}

}  // namespace fake_cuda
