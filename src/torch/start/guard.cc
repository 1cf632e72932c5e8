// Device guard, streams and events of the managed devices. Streams are only names.
//
// The engine puts the program's operators on a node's one compute queue in program order, whatever stream the
// program chooses, and orders copies after them. So record and wait between streams do nothing. Only the host
// can be ahead, and each call that makes the host wait waits for the engine's queues.
//
// An event made with enable_timing=True waits for the earlier work when it is recorded, and then reads the
// clock. So elapsed_time is the time of the work between two events, not the time to launch it. If the
// device's nodes are simulated GPUs, the clock is their own.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <optional>

#include "torch/accelerator/backend.h"
#include "torch/errors.h"
#include "torch/memory/device_index.h"
#include "torch/memory/handle.h"
#include "torch/process/fork.h"
#include "torch/process/runtime_state.h"
#include "torch/start/shell.h"

namespace innkeeper::torch_layer {
namespace {

using c10::DeviceIndex;
using c10::Stream;

thread_local std::array<c10::StreamId, kMaxNodes> current_stream_ids{};
std::atomic<c10::StreamId> last_stream_id{0};

// Target of the opaque pointer in a c10::Event.
struct RecordedEvent {
  bool timed = false;
  double seconds = 0;     // Time on the clock of its device.
  DeviceIndex index = 0;  // Index of the device that recorded it.
};

Stream stream_of(c10::Device device, c10::StreamId id) {
  return Stream(Stream::UNSAFE, device_at(resolved_index(device.index())), id);
}

c10::StreamId& current_stream_id(c10::Device device) {
  return current_stream_ids[static_cast<size_t>(resolved_index(device.index())) % kMaxNodes];
}

void check_device(c10::Device device) {
  TORCH_CHECK(device.type() == kManagedType, "the guard of the managed device was given ", device);
  check_expected_index(device.index());
}

void wait_for_engine() {
  refuse_in_forked_child();
  if (Runtime* started = runtime_if_started()) throw_if_error(started->engine().synchronize(), "synchronize");
}

// Seconds on the clock of the simulated GPU that the device prefers, or of the latest one with one device.
// Without simulated GPUs, on the steady clock.
double seconds_now(DeviceIndex index) {
  if (Runtime* started = runtime_if_started()) {
    Engine& engine = started->engine();
    const NodeId own = node_at(resolved_index(index));
    std::optional<double> latest;
    for (const NodeId node : engine.computing_nodes()) {
      const NodeBackend& backend = started->backend(node);
      if (backend.accelerator == nullptr || (own != kNoNode && node != own)) continue;
      const std::optional<double> time = backend.accelerator->time(backend.device.index());
      if (time) latest = std::max(latest.value_or(*time), *time);
    }
    if (latest.has_value()) return *latest;
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kManagedType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    check_device(device);
    return device_at(exchange_index(device.index()));
  }
  c10::Device getDevice() const override { return device_at(current_index()); }
  void setDevice(c10::Device device) const override { (void)exchangeDevice(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { exchange_index(device.index()); }
  DeviceIndex deviceCount() const noexcept override { return index_limit(); }

  Stream getStream(c10::Device device) const override { return stream_of(device, current_stream_id(device)); }
  Stream getDefaultStream(c10::Device device) const override { return stream_of(device, 0); }
  Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getNewStream(device, 0); }
  Stream getNewStream(c10::Device device, int) const override {
    check_device(device);
    return stream_of(device, last_stream_id.fetch_add(1, std::memory_order_relaxed) + 1);
  }
  Stream exchangeStream(Stream stream) const override {
    check_device(stream.device());
    return stream_of(stream.device(), std::exchange(current_stream_id(stream.device()), stream.id()));
  }
  bool queryStream(const Stream&) const override {
    wait_for_engine();
    return true;
  }
  void synchronizeStream(const Stream&) const override { wait_for_engine(); }
  void synchronizeDevice(DeviceIndex) const override { wait_for_engine(); }
  void recordDataPtrOnStream(const c10::DataPtr&, const Stream&) const override {}

  void record(void** event, const Stream& stream, DeviceIndex, c10::EventFlag flag) const override {
    if (*event == nullptr) *event = new RecordedEvent;
    auto& recorded = *static_cast<RecordedEvent*>(*event);
    recorded.index = stream.device_index();
    recorded.timed = flag == c10::EventFlag::BACKEND_DEFAULT;
    if (!recorded.timed) return;
    wait_for_engine();
    recorded.seconds = seconds_now(stream.device_index());
  }
  void block(void*, const Stream&) const override {}
  bool queryEvent(void* event) const override {
    synchronizeEvent(event);
    return true;
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) wait_for_engine();
  }
  void destroyEvent(void* event, DeviceIndex) const noexcept override {
    delete static_cast<RecordedEvent*>(event);
  }
  double elapsedTime(void* first, void* second, DeviceIndex) const override {
    TORCH_CHECK(first != nullptr && second != nullptr,
                "both events must be recorded before their time is asked");
    const auto& begin = *static_cast<RecordedEvent*>(first);
    const auto& end = *static_cast<RecordedEvent*>(second);
    TORCH_CHECK(begin.timed && end.timed, "both events must be made with enable_timing=True");
    TORCH_CHECK(begin.index == end.index, "elapsed_time: the events are of different devices, ",
                device_at(begin.index), " and ", device_at(end.index));
    return 1e3 * (end.seconds - begin.seconds);
  }

  // All dtypes: if a node cannot compute one, another kind of node does (the host last).
  c10::DeviceCapability getDeviceCapability(c10::Device) const override { return {}; }
};

}  // namespace

void register_guard() {
  static const Guard* guard = new Guard;
  static const c10::impl::DeviceGuardImplRegistrar registrar(kManagedType, guard);
}

}  // namespace innkeeper::torch_layer
