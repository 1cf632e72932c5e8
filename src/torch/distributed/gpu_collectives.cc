#include "torch/distributed/gpu_collectives.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/ScopeExit.h>

#include <utility>

#include "torch/process/fork.h"

namespace innkeeper::torch_layer {

GpuCollectives::GpuCollectives(c10::intrusive_ptr<c10d::Backend> backend, NodeId node, c10::Device device)
    : backend_(std::move(backend)), node_(node), device_(device), thread_([this] { run(); }) {}

GpuCollectives::~GpuCollectives() {
  if (is_forked_child()) {
    thread_.detach();  // The thread is the parent's.
    return;
  }
  {
    MutexLock lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
  backend_->shutdown();
}

bool GpuCollectives::take(c10::ScalarType type) {
  switch (type) {
    case c10::kFloat:
    case c10::kDouble:
    case c10::kHalf:
    case c10::kBFloat16:
    case c10::kInt:
    case c10::kLong:
    case c10::kChar:
    case c10::kByte:
    case c10::kBool: return true;
    default: return false;
  }
}

void GpuCollectives::watch(Collective& collective) {
  MutexLock lock(mutex_);
  started_.push_back(&collective);
  changed_.notify_all();
}

Collective* GpuCollectives::next() {
  MutexLock lock(mutex_);
  while (started_.empty() && !stop_) changed_.wait(mutex_);
  if (started_.empty()) return nullptr;
  Collective* const first = started_.front();
  started_.pop_front();
  return first;
}

// The work's wait makes the thread's current stream wait for it, and that stream has no other work.
std::exception_ptr GpuCollectives::await(Collective& collective) const {
  try {
    const c10::DeviceGuard at(device_);
    const c10::impl::VirtualGuardImpl gpus(device_.type());
    const c10::Stream stream = gpus.getStreamFromGlobalPool(device_);
    const auto back =
        c10::make_scope_exit([&, before = gpus.exchangeStream(stream)] { gpus.exchangeStream(before); });
    collective.inner->wait();
    gpus.synchronizeStream(stream);
    return nullptr;
  } catch (const std::exception&) {
    return std::current_exception();
  }
}

void GpuCollectives::run() {
  while (Collective* const collective = next()) collective->end(await(*collective));
}

}  // namespace innkeeper::torch_layer
