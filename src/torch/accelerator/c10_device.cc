#include "torch/accelerator/c10_device.h"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <initializer_list>
#include <utility>

#include "torch/accelerator/backend.h"
#include "torch/accelerator/c10_event.h"
#include "torch/accelerator/guarded.h"
#include "torch/process/faults.h"

namespace innkeeper::torch_layer {
namespace {

// `size` bytes at `data` as a tensor that owns no memory.
at::Tensor bytes_at(void* data, Bytes size, c10::Device device, c10::DispatchKey key) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<size_t>(size.count()), c10::DataPtr(data, device),
      /*allocator=*/nullptr, /*resizable=*/false);
  auto tensor = c10::make_intrusive<c10::TensorImpl>(
      c10::Storage(std::move(storage)), c10::DispatchKeySet(key), caffe2::TypeMeta::Make<uint8_t>());
  tensor->set_sizes_contiguous({size.count()});
  return at::Tensor(std::move(tensor));
}

at::Tensor host_bytes(void* data, Bytes size) {
  return bytes_at(data, size, c10::kCPU, c10::DispatchKey::CPU);
}

// If a part of a copy fails, another part may be on a stream already, without an event for which a thread
// could wait. The memory is freed after the failure, so this function waits for the devices' work first.
template <class Copy>
Event whole_or_over(std::initializer_list<DeviceHealth*> ends, const Copy& copy) {
  try {
    return copy();
  } catch (...) {
    for (DeviceHealth* end : ends) end->wait_out();
    throw;
  }
}

c10::Stream compute_queue_of(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getDefaultStream(device);
}

}  // namespace

C10Device::C10Device(std::string name, c10::Device device, c10::DispatchKey key,
                     std::function<Bytes()> recount, std::unique_ptr<MemoryOrder> order)
    : C10Device(name, device, key, std::move(recount), std::move(order),
                std::make_shared<DeviceHealth>(name, compute_queue_of(device))) {}

C10Device::C10Device(std::string name, c10::Device device, c10::DispatchKey key,
                     std::function<Bytes()> recount, std::unique_ptr<MemoryOrder> order,
                     std::shared_ptr<DeviceHealth> health)
    : Device(&health->lost()),
      name_(std::move(name)),
      device_(device),
      key_(key),
      backend_(backend_of(device.type())),
      recount_(std::move(recount)),
      order_(std::move(order)),
      health_(std::move(health)),
      streams_{compute_queue_of(device), c10::Stream(c10::Stream::DEFAULT, device),
               c10::Stream(c10::Stream::DEFAULT, device)} {
  IK_CHECK(backend_ != nullptr, "a device of a kind that this build lacks");
  const c10::impl::VirtualGuardImpl guard(device.type());
  streams_[1] = guard.getStreamFromGlobalPool(device, /*isHighPriority=*/true);
  streams_[2] = guard.getStreamFromGlobalPool(device, /*isHighPriority=*/true);
  order_->attach(stream(Queue::compute), health_);
}

Result<Memory> C10Device::allocate(Bytes size, Queue first) {
  if (size.count() <= 0) {  // c10 would return a null address.
    return Status(Code::invalid_argument, name_ + ": asked " + std::to_string(size.count()) + " bytes");
  }
  return guarded(*health_, {"allocating", size}, [&]() -> Result<Memory> {
    c10::DataPtr memory = order_->allocate(static_cast<size_t>(size.count()), stream(first));
    void* data = memory.get();
    const c10::DeleterFnPtr release = memory.get_deleter();
    return Memory(data, size, memory.release_context(), release);
  });
}

void C10Device::give_back(Memory memory, std::span<const Event> users) {
  if (order_->free_after(memory, users)) return;
  Device::give_back(std::move(memory), users);
}

Event C10Device::record_on(const c10::Stream& stream, DeviceCall call) const {
  return std::make_shared<C10Event>(stream, health_, std::move(call));
}

Result<Event> C10Device::record(Queue queue) {
  return guarded(*health_, {"recording an event"}, [&]() -> Result<Event> {
    const uint64_t number = order_->number();
    Event event = record_on(stream(queue), {"its work so far"});
    if (queue == Queue::compute) order_->recorded(number, event);
    return event;
  });
}

Status C10Device::wait(Queue queue, const Event& event) {
  if (event == nullptr) return {};
  auto* ours = dynamic_cast<C10Event*>(event.get());
  if (ours == nullptr) return event->synchronize();
  return guarded(*health_, {"waiting for an event"}, [&]() -> Status {
    ours->block(stream(queue));
    return {};
  });
}

// `copy` puts a copy between the host and this device on the current stream, which is the queue's.
template <class Copy>
Result<Event> C10Device::copy_with_host(Queue queue, Bytes size, const Copy& copy) {
  const DeviceCall call{"copying", size, queue == Queue::copy_in ? " from the host" : " to the host"};
  return guarded(*health_, call, [&]() -> Result<Event> {
    const c10::StreamGuard on_stream(stream(queue));
    return whole_or_over({health_.get()}, [&] {
      copy();
      return record_on(stream(queue), call);
    });
  });
}

Result<Event> C10Device::copy_in(void* device, const void* host, Bytes size) {
  return copy_with_host(Queue::copy_in, size, [&] {
    bytes_at(device, size, device_, key_)
        .copy_(host_bytes(const_cast<void*>(host), size), /*non_blocking=*/true);
  });
}

Result<Event> C10Device::copy_out(void* host, const void* device, Bytes size) {
  return copy_with_host(Queue::copy_out, size, [&] {
    host_bytes(host, size)
        .copy_(bytes_at(const_cast<void*>(device), size, device_, key_), /*non_blocking=*/true);
  });
}

Result<Event> C10Device::copy_tensor(Queue queue, const at::Tensor& to, const at::Tensor& from) {
  const auto size = Bytes(static_cast<int64_t>(to.nbytes()));
  return copy_with_host(queue, size, [&] { to.copy_(from, /*non_blocking=*/true); });
}

bool C10Device::can_copy_from(const Device& peer) const {
  const auto* other = dynamic_cast<const C10Device*>(&peer);
  return other != nullptr && other->device_.type() == device_.type();
}

Result<Event> C10Device::copy_peer(void* destination, Device& peer, const void* source, Bytes size) {
  if (!can_copy_from(peer)) {
    return Status(Code::invalid_argument, name_ + " cannot copy " + to_string(size) + " from " + peer.name() +
                                              ": it is a device of another make");
  }
  auto& other = dynamic_cast<C10Device&>(peer);
  const DeviceCall call{"copying", size, " from ", other.name_};
  return guarded(*health_, call, [&]() -> Result<Event> {
    // Backends differ in the device whose stream they use, so both streams are ordered before the copy and
    // after it.
    const c10::Stream& ours = stream(Queue::copy_in);
    const c10::Stream& theirs = other.stream(Queue::copy_out);
    C10Event(ours, health_, call).block(theirs);
    const c10::StreamGuard on_their_stream(theirs);
    const c10::StreamGuard on_our_stream(ours);
    return whole_or_over({other.health_.get(), health_.get()}, [&] {
      bytes_at(destination, size, device_, key_)
          .copy_(bytes_at(const_cast<void*>(source), size, other.device_, key_), /*non_blocking=*/true);
      C10Event(theirs, other.health_, call).block(ours);
      return record_on(ours, call);
    });
  });
}

Bytes C10Device::trim() {
  auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device_.type()));
  if (allocator != nullptr) allocator->emptyCache();
  return Bytes(0);  // c10 does not report the freed bytes.
}

Status C10Device::synchronize() {
  return guarded(*health_, {"waiting for its work"}, [&]() -> Status {
    c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
    return {};
  });
}

bool C10Device::works_unseen() const { return backend_->works_unseen(); }
bool C10Device::may_be_helped() const { return !backend_->is_any_captured(); }
void C10Device::begin_helping() { backend_->spare_captures(device_.index()); }

Result<Memory> HostNode::allocate(Bytes size, Queue) {
  if (faults::injected(faults::Fault::allocation)) {
    return Status(Code::out_of_memory, faults::message("no memory for a replica on the host"));
  }
  return host_.allocate(size);
}

Bytes HostNode::live() const { return host_.live() + charged_host_memory(self_); }

}  // namespace innkeeper::torch_layer
