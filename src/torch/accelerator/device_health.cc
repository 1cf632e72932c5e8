#include "torch/accelerator/device_health.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <c10/util/Type.h>

#include <string_view>
#include <typeinfo>

namespace innkeeper::torch_layer {
namespace {

// PyTorch's message without its advice, which takes several lines. An exception of Python's has no message,
// so its type stands for it.
std::string reason(const std::exception& error) {
  const auto* ours = dynamic_cast<const c10::Error*>(&error);
  const std::string_view what = ours == nullptr ? error.what() : ours->what_without_backtrace();
  if (what.empty()) return c10::demangle(typeid(error).name());
  return std::string(what.substr(0, what.find('\n')));
}

}  // namespace

std::string DeviceCall::text() const {
  return what + (size.has_value() ? " " + to_string(*size) : std::string()) + where + peer;
}

bool DeviceHealth::answers() const noexcept {
  try {
    (void)c10::impl::VirtualGuardImpl(queue_.device_type()).queryStream(queue_);
    return true;
  } catch (...) {
    return false;
  }
}

Status DeviceHealth::failure(const DeviceCall& call, const std::exception& error) {
  const std::string line = name_ + ": " + call.text() + " failed: " + reason(error);
  if (!lost_.load(std::memory_order_acquire)) {
    if (answers()) return Status(Code::device_failed, line);
    lose(line);
  }
  return loss();
}

void DeviceHealth::lose(const std::string& line) {
  MutexLock lock(mutex_);
  if (why_.empty()) why_ = line;
  lost_.store(true, std::memory_order_release);
}

void DeviceHealth::wait_out() noexcept {
  constexpr int kTimes = 3;
  for (int time = 1; !lost_.load(std::memory_order_acquire); ++time) {
    try {
      c10::impl::VirtualGuardImpl(queue_.device_type()).synchronizeDevice(queue_.device_index());
      return;
    } catch (const std::exception& error) {
      if (time == kTimes) lose(name_ + ": waiting for its work failed: " + reason(error));
    }
  }
}

Status DeviceHealth::loss() const {
  MutexLock lock(mutex_);
  return Status(Code::device_lost,
                name_ + " is lost to this process (" + why_ + "); what other nodes hold can still be used");
}

}  // namespace innkeeper::torch_layer
