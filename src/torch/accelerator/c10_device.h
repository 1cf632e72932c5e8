// A real (or simulated) accelerator as the engine's Device, through c10's generic interfaces alone: device
// guard, streams, events, allocator and Tensor::copy_. The engine cannot tell a GPU from the simulator.
//
// The compute queue is the device's default stream, on which its kernels run. Copies run on two streams of
// PyTorch's pool.
//
// The allocator (the simulator's own, or a forwarding one in front of CUDA's) charges the Accountant for
// every allocation, so this class does not.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/DispatchKey.h>
#include <c10/core/Stream.h>

#include <array>
#include <functional>
#include <memory>
#include <string>

#include "device/device_api.h"
#include "device/host.h"
#include "torch/accelerator/device_health.h"
#include "torch/accelerator/memory_order.h"

namespace innkeeper::torch_layer {

class Backend;

class C10Device final : public Device {
 public:
  // `recount` asks the allocator for the bytes that are alive on the device. `order`: a record of the queues
  // that used its memory.
  C10Device(std::string name, c10::Device device, c10::DispatchKey key, std::function<Bytes()> recount,
            std::unique_ptr<MemoryOrder> order);

  NodeKind kind() const override { return NodeKind::accelerator; }
  const std::string& name() const override { return name_; }
  void attach(NodeId, Accountant*) override {}
  using Device::allocate;
  Result<Memory> allocate(Bytes size, Queue first) override;
  void give_back(Memory memory, std::span<const Event> users) override;
  void set_limit(Bytes limit) override { order_->set_limit(limit); }
  Bytes live() const override { return recount_(); }
  Result<Event> record(Queue queue) override;
  Status wait(Queue queue, const Event& event) override;
  Result<Event> copy_in(void* device, const void* host, Bytes size) override;
  Result<Event> copy_out(void* host, const void* device, Bytes size) override;
  bool can_copy_from(const Device& peer) const override;
  Result<Event> copy_peer(void* destination, Device& peer, const void* source, Bytes size) override;
  // Copies between a tensor of this device and one of the CPU, on queue copy_in or copy_out. Page-locked
  // memory of CUDA's allocator stays until the copy is done.
  Result<Event> copy_tensor(Queue queue, const at::Tensor& to, const at::Tensor& from);
  Bytes trim() override;
  Status synchronize() override;
  bool works_unseen() const override;
  bool may_be_helped() const override;
  void begin_helping() override;
  Status loss() const override { return health_->loss(); }
  // Turns an exception of `call`, which PyTorch made on the device, into a Status.
  Status failure(const DeviceCall& call, const std::exception& error) {
    return health_->failure(call, error);
  }

 private:
  C10Device(std::string name, c10::Device device, c10::DispatchKey key, std::function<Bytes()> recount,
            std::unique_ptr<MemoryOrder> order, std::shared_ptr<DeviceHealth> health);
  const c10::Stream& stream(Queue queue) const { return streams_[static_cast<size_t>(queue)]; }
  Event record_on(const c10::Stream& stream, DeviceCall call) const;
  template <class Copy>
  Result<Event> copy_with_host(Queue queue, Bytes size, const Copy& copy);

  const std::string name_;
  const c10::Device device_;
  const c10::DispatchKey key_;
  Backend* const backend_;
  const std::function<Bytes()> recount_;
  const std::unique_ptr<MemoryOrder> order_;
  const std::shared_ptr<DeviceHealth> health_;
  std::array<c10::Stream, 3> streams_;
};

// The host node of a process with PyTorch: slabs, and the allocations of CPU kernels that run for it
// (cpu_allocator.h).
class HostNode final : public Device {
 public:
  HostNode(std::string name, Slabs::Options options) : host_(std::move(name), std::move(options)) {}

  NodeKind kind() const override { return NodeKind::host; }
  const std::string& name() const override { return host_.name(); }
  void attach(NodeId self, Accountant* accountant) override {
    self_ = self;
    host_.attach(self, accountant);
  }
  using Device::allocate;
  Result<Memory> allocate(Bytes size, Queue first) override;
  Bytes live() const override;
  Result<Event> record(Queue queue) override { return host_.record(queue); }
  Status wait(Queue queue, const Event& event) override { return host_.wait(queue, event); }
  Result<Event> copy_in(void* to, const void* from, Bytes size) override {
    return host_.copy_in(to, from, size);
  }
  Result<Event> copy_out(void* to, const void* from, Bytes size) override {
    return host_.copy_out(to, from, size);
  }
  bool can_copy_from(const Device& peer) const override { return host_.can_copy_from(peer); }
  Result<Event> copy_peer(void* to, Device& peer, const void* from, Bytes size) override {
    return host_.copy_peer(to, peer, from, size);
  }
  Bytes trim() override { return host_.trim(); }
  void tidy() { host_.tidy(); }
  Status synchronize() override { return host_.synchronize(); }

 private:
  HostDevice host_;
  NodeId self_ = kNoNode;
};

}  // namespace innkeeper::torch_layer
