// The host node: memory from slabs. Copies are done before they return, so their events are null.
//
// The host node keeps no budget. The node's Accountant refuses allocations beyond it; host_memory_limit()
// returns the machine's limit for this process. Waiting for another device's event blocks the calling thread.
//
// Thread safety: all methods. Ownership: the device must outlive its Memory.
#pragma once

#include <string>

#include "device/device_api.h"
#include "device/slabs.h"

namespace innkeeper {

// Returns the physical memory, or this process's cgroup limit (version 2 or 1, with those of its parents) if
// that is less. The directories are arguments for tests.
Bytes host_memory_limit(const std::string& proc = "/proc", const std::string& cgroups = "/sys/fs/cgroup");

class HostDevice final : public Device {
 public:
  explicit HostDevice(std::string name = "host", Slabs::Options options = {});

  NodeKind kind() const override { return NodeKind::host; }
  const std::string& name() const override { return name_; }
  void attach(NodeId self, Accountant* accountant) override;
  using Device::allocate;
  Result<Memory> allocate(Bytes size, Queue first) override;
  Bytes live() const override { return slabs_.live(); }

  Result<Event> record(Queue) override { return Event(); }
  Status wait(Queue, const Event& event) override;
  Result<Event> copy_in(void* device, const void* host, Bytes size) override;
  Result<Event> copy_out(void* host, const void* device, Bytes size) override;
  bool can_copy_from(const Device&) const override { return false; }
  Result<Event> copy_peer(void* destination, Device& peer, const void* source, Bytes size) override;
  Bytes trim() override { return slabs_.trim(); }
  void tidy() { slabs_.tidy(); }
  Status synchronize() override { return Status::okay(); }

  const Slabs& slabs() const { return slabs_; }

 private:
  struct Claim;
  void take_back(void* data);

  const std::string name_;
  Slabs slabs_;
  // Set once, before any allocation.
  NodeId self_ = kNoNode;
  Accountant* accountant_ = nullptr;
};

}  // namespace innkeeper
