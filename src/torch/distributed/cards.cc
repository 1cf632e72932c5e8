#include "torch/distributed/cards.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/ScopeExit.h>

#include <utility>

#include "torch/process/fork.h"

namespace innkeeper::torch_layer {

Cards::Cards(c10::intrusive_ptr<c10d::Backend> backend, NodeId node, c10::Device device)
    : backend_(std::move(backend)), node_(node), device_(device), thread_([this] { run(); }) {}

Cards::~Cards() {
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

bool Cards::take(c10::ScalarType type) {
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

void Cards::watch(Collective& collective) {
  MutexLock lock(mutex_);
  started_.push_back(&collective);
  changed_.notify_all();
}

Collective* Cards::next() {
  MutexLock lock(mutex_);
  while (started_.empty() && !stop_) changed_.wait(mutex_);
  if (started_.empty()) return nullptr;
  Collective* const first = started_.front();
  started_.pop_front();
  return first;
}

// The work's wait makes the thread's current stream wait for it, and that stream has no other work.
std::exception_ptr Cards::await(Collective& collective) const {
  try {
    const c10::DeviceGuard at(device_);
    const c10::impl::VirtualGuardImpl cards(device_.type());
    const c10::Stream stream = cards.getStreamFromGlobalPool(device_);
    const auto back =
        c10::make_scope_exit([&, before = cards.exchangeStream(stream)] { cards.exchangeStream(before); });
    collective.inner->wait();
    cards.synchronizeStream(stream);
    return nullptr;
  } catch (const std::exception&) {
    return std::current_exception();
  }
}

void Cards::run() {
  while (Collective* const collective = next()) collective->end(await(*collective));
}

}  // namespace innkeeper::torch_layer
