// The engine's view of a simulated accelerator (make_device in accelerator.h).
#include <utility>

#include "base/check.h"
#include "sim/accelerator.h"
#include "sim/work_queue.h"

namespace innkeeper::sim {
namespace {

class SimDevice final : public Device {
 public:
  explicit SimDevice(std::shared_ptr<Accelerator> accelerator) : accelerator_(std::move(accelerator)) {}

  NodeKind kind() const override { return NodeKind::accelerator; }
  const std::string& name() const override { return accelerator_->options().name; }

  void attach(NodeId self, Accountant* accountant) override {
    self_ = self;
    accountant_ = accountant;
  }

  using Device::allocate;
  Result<Memory> allocate(Bytes size, Queue first) override {
    const Bytes rounded = round_up(size);
    if (accountant_ != nullptr && size.count() > 0) IK_RETURN_IF_ERROR(accountant_->charge(self_, rounded));
    Result<void*> data = accelerator_->allocate(size, index(first));
    if (!data.ok()) {
      if (accountant_ != nullptr && size.count() > 0) accountant_->uncharge(self_, rounded);
      return data.status();
    }
    return Memory(data.value(), rounded, new Claim{this, data.value(), rounded}, &release);
  }

  void give_back(Memory memory, std::span<const Event> users) override {
    if (!memory) return;
    const Memory::Raw raw = memory.take();
    IK_CHECK(raw.release == &release, "memory of another device is given back");
    const std::unique_ptr<Claim> claim(static_cast<Claim*>(raw.context));
    accelerator_->free_after(claim->data, users);
    if (accountant_ != nullptr) accountant_->uncharge(self_, claim->size);
  }
  void set_limit(Bytes limit) override { accelerator_->set_limit(limit); }

  Bytes live() const override { return accelerator_->live(); }

  Result<Event> record(Queue queue) override { return accelerator_->record(index(queue)); }

  Status wait(Queue queue, const Event& event) override {
    if (dynamic_cast<const SimEvent*>(event.get()) != nullptr) {
      accelerator_->wait(index(queue), event);
      return Status::okay();
    }
    // The event may be a failed one of a disk.
    return event == nullptr ? Status::okay() : event->synchronize();
  }

  Result<Event> copy_in(void* device, const void* host, Bytes size) override {
    return copy(Queue::copy_in, device, host, size, Accelerator::Direction::in);
  }
  Result<Event> copy_out(void* host, const void* device, Bytes size) override {
    return copy(Queue::copy_out, host, device, size, Accelerator::Direction::out);
  }
  bool can_copy_from(const Device& peer) const override {
    return dynamic_cast<const SimDevice*>(&peer) != nullptr;
  }
  Result<Event> copy_peer(void* destination, Device& peer, const void* source, Bytes size) override {
    if (!can_copy_from(peer)) {
      return Status(Code::invalid_argument, name() + " cannot copy " + to_string(size) + " from " +
                                                peer.name() + ": it is no simulated accelerator");
    }
    return copy(Queue::copy_in, destination, source, size, Accelerator::Direction::peer);
  }

  Bytes trim() override { return accelerator_->trim(); }
  Status synchronize() override {
    accelerator_->synchronize();
    return Status::okay();
  }

 private:
  struct Claim {
    SimDevice* device;
    void* data;
    Bytes size;
  };

  static void release(void* context) {
    const std::unique_ptr<Claim> claim(static_cast<Claim*>(context));
    SimDevice& device = *claim->device;
    device.accelerator_->free(claim->data);
    if (device.accountant_ != nullptr) device.accountant_->uncharge(device.self_, claim->size);
  }

  static QueueIndex index(Queue queue) { return static_cast<QueueIndex>(queue); }

  Result<Event> copy(Queue queue, void* destination, const void* source, Bytes size,
                     Accelerator::Direction direction) {
    return accelerator_->copy(index(queue), destination, source, static_cast<size_t>(size.count()),
                              direction);
  }

  const std::shared_ptr<Accelerator> accelerator_;
  // Set once, before any allocation.
  NodeId self_ = kNoNode;
  Accountant* accountant_ = nullptr;
};

}  // namespace

std::unique_ptr<Device> make_device(std::shared_ptr<Accelerator> accelerator) {
  return std::make_unique<SimDevice>(std::move(accelerator));
}

}  // namespace innkeeper::sim
