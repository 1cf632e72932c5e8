#include "device/host.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

namespace innkeeper {
namespace {

// An empty range may have a null address, which memcpy does not accept.
void copy_bytes(void* to, const void* from, Bytes size) {
  if (size.count() > 0) std::memcpy(to, from, static_cast<size_t>(size.count()));
}

// A limit file holds a number, "max" (no limit) or, in version 1, a number near 2^63 (no limit).
void apply_limit(const std::string& file, int64_t& limit) {
  std::ifstream stream(file);
  int64_t found = 0;
  if (stream >> found && found > 0) limit = std::min(limit, found);
}

// Applies the group's own limit and those of all its ancestors.
void apply_group(const std::string& root, std::string group, const std::string& file, int64_t& limit) {
  while (!group.empty() && group != "/") {
    apply_limit(root + group + "/" + file, limit);
    group.erase(group.find_last_of('/'));
  }
  apply_limit(root + "/" + file, limit);
}

}  // namespace

Bytes host_memory_limit(const std::string& proc, const std::string& cgroups) {
  int64_t limit = static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  std::ifstream membership(proc + "/self/cgroup");
  for (std::string line; std::getline(membership, line);) {  // "hierarchy:controllers:/group"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos || second + 1 >= line.size() || line[second + 1] != '/') continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (controllers == ",,") apply_group(cgroups, group, "memory.max", limit);
    if (controllers.find(",memory,") != std::string::npos) {
      apply_group(cgroups + "/memory", group, "memory.limit_in_bytes", limit);
    }
  }
  return Bytes(limit);
}

struct HostDevice::Claim {
  HostDevice* device;
  void* data;
};

HostDevice::HostDevice(std::string name, Slabs::Options options)
    : name_(name), slabs_(std::move(name), std::move(options)) {}

void HostDevice::attach(NodeId self, Accountant* accountant) {
  IK_CHECK(live() == Bytes(0), "a device is attached before its first allocation");
  self_ = self;
  accountant_ = accountant;
}

Result<Memory> HostDevice::allocate(Bytes size, Queue) {
  if (size.count() <= 0) {
    return Status(Code::invalid_argument, name_ + ": asked " + std::to_string(size.count()) + " bytes");
  }
  const Bytes rounded = round_up(size);
  if (accountant_ != nullptr) IK_RETURN_IF_ERROR(accountant_->charge(self_, rounded));
  Result<void*> block = slabs_.allocate(rounded);
  if (!block.ok()) {
    if (accountant_ != nullptr) accountant_->uncharge(self_, rounded);
    return block.status();
  }
  void* const data = block.value();
  return Memory(data, rounded, new Claim{this, data}, [](void* context) {
    auto* claim = static_cast<Claim*>(context);
    claim->device->take_back(claim->data);
    delete claim;
  });
}

void HostDevice::take_back(void* data) {
  const Bytes size = slabs_.free(data);
  if (accountant_ != nullptr) accountant_->uncharge(self_, size);
}

Status HostDevice::wait(Queue, const Event& event) {
  return event == nullptr ? Status::okay() : event->synchronize();
}

Result<Event> HostDevice::copy_in(void* device, const void* host, Bytes size) {
  copy_bytes(device, host, size);
  return Event();
}

Result<Event> HostDevice::copy_out(void* host, const void* device, Bytes size) {
  copy_bytes(host, device, size);
  return Event();
}

Result<Event> HostDevice::copy_peer(void*, Device& peer, const void*, Bytes size) {
  return Status(Code::invalid_argument,
                name_ + ": " + to_string(size) + " from " + peer.name() +
                    ": host memory has no peers, copy out of the other device instead");
}

}  // namespace innkeeper
