#include "torch/sim/guard.h"

#include <memory>

#include "torch/process/faults.h"
#include "torch/sim/allocator.h"
#include "torch/sim/current.h"
#include "torch/sim/machine.h"

namespace innkeeper::torch_layer::sim_backend {
namespace {

using c10::DeviceIndex;
using c10::Stream;

// The pool's high-priority streams are the copy queues; Machine makes the other streams.
constexpr uint32_t kFastStreams = 2;
constexpr sim::QueueIndex kFirstFast = 1;

// Target of the opaque pointer in a c10::Event.
struct RecordedEvent {
  Event event;
};

RecordedEvent& recorded(void* event) { return *static_cast<RecordedEvent*>(event); }

void check(const Status& status) { TORCH_CHECK(status.ok(), status.message()); }

void may_fail(const char* what) {
  TORCH_CHECK(!faults::injected(faults::Fault::event), faults::message(what));
}

sim::QueueIndex queue_of(const Stream& stream) {
  TORCH_CHECK(stream.id() >= 0 && stream.id() < kMaxStreams, "no such stream of ", stream.device(), ": ",
              stream.id());
  return static_cast<sim::QueueIndex>(stream.id());
}

DeviceIndex index_of(c10::Device device) { return device.index() < 0 ? current_device() : device.index(); }

}  // namespace

Event event_of(const c10::Event& event) {
  void* const id = event.eventId();
  return id == nullptr ? nullptr : recorded(id).event;
}

namespace {

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kHPU; }

  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device previous = getDevice();
    setDevice(device);
    return previous;
  }
  c10::Device getDevice() const override { return {c10::kHPU, current_device()}; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.is_hpu() && device.index() < machine().count(), "no such device: ", device);
    uncheckedSetDevice(device);
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) current.device = device.index();
  }
  DeviceIndex deviceCount() const noexcept override { return machine().count(); }

  Stream getStream(c10::Device device) const override {
    const DeviceIndex index = index_of(device);
    return make_stream(index, current_queue(index));
  }
  Stream getDefaultStream(c10::Device device) const override {
    return make_stream(index_of(device), kComputeQueue);
  }
  Stream getStreamFromGlobalPool(c10::Device device, bool is_high_priority) const override {
    const DeviceIndex index = index_of(device);
    Machine::Entry& entry = machine().entry(index);
    if (is_high_priority) {
      return make_stream(index, kFirstFast + entry.next_fast_stream.fetch_add(1) % kFastStreams);
    }
    return make_stream(index, entry.first_stream + entry.next_stream.fetch_add(1) % kPlainStreams);
  }
  Stream getNewStream(c10::Device device, int priority) const override {
    return getStreamFromGlobalPool(device, priority < 0);
  }
  Stream exchangeStream(Stream stream) const override {
    const DeviceIndex index = index_of(stream.device());
    const Stream previous = getStream(stream.device());
    current.queue[static_cast<size_t>(index)] = static_cast<uint8_t>(queue_of(stream));
    return previous;
  }
  bool queryStream(const Stream& stream) const override {
    return accelerator(stream.device_index()).idle(queue_of(stream));
  }
  void synchronizeStream(const Stream& stream) const override {
    accelerator(stream.device_index()).synchronize(queue_of(stream));
  }
  void synchronizeDevice(DeviceIndex index) const override { accelerator(index).synchronize(); }
  void recordDataPtrOnStream(const c10::DataPtr& pointer, const Stream& stream) const override {
    device_allocator().recordStream(pointer, stream);
  }

  void record(void** event, const Stream& stream, DeviceIndex, c10::EventFlag) const override {
    may_fail("recording an event");
    if (*event == nullptr) *event = new RecordedEvent;
    recorded(*event).event = accelerator(stream.device_index()).record(queue_of(stream));
  }
  void block(void* event, const Stream& stream) const override {
    if (event == nullptr) return;
    may_fail("waiting for an event on a stream");
    accelerator(stream.device_index()).wait(queue_of(stream), recorded(event).event);
  }
  bool queryEvent(void* event) const override {
    if (event == nullptr) return true;
    may_fail("asking an event");
    return is_done(recorded(event).event);
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr || recorded(event).event == nullptr) return;
    check(recorded(event).event->synchronize());
    may_fail("waiting for an event");  // A GPU reports an error when the wait is over.
  }
  void destroyEvent(void* event, DeviceIndex) const noexcept override {
    delete static_cast<RecordedEvent*>(event);
  }
  // Milliseconds of virtual time between two events.
  double elapsedTime(void* first, void* second, DeviceIndex) const override {
    TORCH_CHECK(first != nullptr && second != nullptr, "both events must be recorded");
    return 1e3 * (sim::time_of(recorded(second).event) - sim::time_of(recorded(first).event));
  }

 private:
  static Stream make_stream(DeviceIndex index, sim::QueueIndex queue) {
    return Stream(Stream::UNSAFE, c10::Device(c10::kHPU, index), static_cast<c10::StreamId>(queue));
  }
};

}  // namespace

void register_guard() {
  static const Guard* guard = new Guard;
  static const c10::impl::DeviceGuardImplRegistrar registrar(c10::kHPU, guard);
}

}  // namespace innkeeper::torch_layer::sim_backend
