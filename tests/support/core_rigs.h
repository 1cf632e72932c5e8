// Rigs (device_rig.h) of core's devices: the host, the disk, simulated GPUs, and the GPUs that fail on
// demand by which the engine is tried.
#pragma once

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "device/disk.h"
#include "device/host.h"
#include "sim/accelerator.h"
#include "support/device_rig.h"
#include "support/faulty_device.h"
#include "support/faulty_disk.h"

namespace innkeeper::test {

class CoreRig : public Rig {
 public:
  Books& books() override { return books_; }

 private:
  Books books_;
};

// A rig whose kernels run on the CPU.
class HostRig final : public CoreRig {
 public:
  HostRig() {
    device_ = std::make_unique<HostDevice>();
    device_->attach(Books::kDevice, &books());
  }
  void fill(void* data, Bytes size, int value) override { std::memset(data, value, length(size)); }
  int look(const void* data, Bytes size) override { return seen(data, size); }
  Bytes too_much() const override { return Bytes(int64_t{1} << 50); }

  static size_t length(Bytes size) { return static_cast<size_t>(size.count()); }
  static int seen(const void* data, Bytes size) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    return std::all_of(bytes, bytes + length(size), [&](int byte) { return byte == *bytes; }) ? *bytes : -1;
  }
};

class DiskRig final : public CoreRig {
 public:
  explicit DiskRig(bool direct) {
    device_ = DiskDevice::open({.path = std::filesystem::temp_directory_path(),
                                .capacity = MiB(64),
                                .direct = direct,
                                .calls = FaultyDisk::calls()})
                  .value();
    device_->attach(Books::kDevice, &books());
  }
  ~DiskRig() override { device_.reset(); }  // Destroys the device before the faulty disk that it calls.
  Bytes too_much() const override { return MiB(65); }
  void fail_next_copy() override { faults_.arm(1, static_cast<unsigned>(DiskFault::io_error)); }

 private:
  FaultPlan faults_;
  FaultyDisk calls_{&faults_};
};

class SimRig : public CoreRig {
 public:
  explicit SimRig(sim::Visibility visibility, uint64_t seed = 1) {
    peer_ = make("sim:1", visibility, seed + 1, Books::kPeerNode);
    device_ = make("sim:0", visibility, seed, Books::kDevice);
  }
  void fill(void* data, Bytes size, int value) override {
    gpu_->begin_kernel(0);
    std::memset(data, value, HostRig::length(size));
    const sim::WrittenRange written{data, HostRig::length(size)};
    gpu_->end_kernel(0, {&written, 1}, {});
  }
  int look(const void* data, Bytes size) override {
    gpu_->begin_kernel(0);
    const int seen = HostRig::seen(data, size);
    gpu_->end_kernel(0, {}, {});
    return seen;
  }
  Bytes too_much() const override { return MiB(65); }

 private:
  std::unique_ptr<Device> make(const char* name, sim::Visibility visibility, uint64_t seed, NodeId node) {
    gpu_ = std::make_shared<sim::Accelerator>(
        sim::Options{.name = name, .capacity = MiB(64), .visibility = visibility, .seed = seed});
    std::unique_ptr<Device> made = sim::make_device(gpu_);
    made->attach(node, &books());
    return made;
  }

  std::shared_ptr<sim::Accelerator> gpu_;  // The simulated GPU of the device.
};

class FaultyRig final : public SimRig {
 public:
  FaultyRig() : SimRig(sim::Visibility::late) {
    peer_ = std::make_unique<FaultyDevice>(std::move(peer_), nullptr, true);
    auto faulty = std::make_unique<FaultyDevice>(std::move(device_), &faults_, true);
    faulty_ = faulty.get();
    device_ = std::move(faulty);
  }
  ~FaultyRig() override { device_.reset(); }  // Destroys the device before its fault plan.
  void fail_next_copy() override { faults_.arm(1, static_cast<unsigned>(Fault::copy)); }
  void lose() override { faulty_->lose(); }

 private:
  FaultPlan faults_;
  FaultyDevice* faulty_;
};

inline RigKind sim_kind(std::string name, sim::Visibility visibility, uint64_t seed = 1) {
  const unsigned late = visibility == sim::Visibility::late ? unsigned{kLate} : 0;
  return {std::move(name), kKernels | kPeer | kFull | kReuses | kPolls | late,
          [visibility, seed] { return std::make_unique<SimRig>(visibility, seed); }};
}
inline RigKind faulty_kind() {
  return {"FaultySim", kKernels | kPeer | kFull | kReuses | kLate | kFailures | kLoss,
          [] { return std::make_unique<FaultyRig>(); }};
}
inline RigKind disk_kind(std::string name, bool direct) {
  return {std::move(name), kFull | kPolls | kFailures,
          [direct] { return std::make_unique<DiskRig>(direct); }};
}
inline std::vector<RigKind> core_kinds() {
  return {{"Host", kKernels | kFull | kPolls, [] { return std::make_unique<HostRig>(); }},
          disk_kind("DirectDisk", true),
          disk_kind("CachedDisk", false),
          sim_kind("LateSim", sim::Visibility::late),
          sim_kind("EarlySim", sim::Visibility::early),
          sim_kind("RandomSim1", sim::Visibility::random, 1),
          sim_kind("RandomSim2", sim::Visibility::random, 2),
          sim_kind("RandomSim3", sim::Visibility::random, 3),
          faulty_kind()};
}

}  // namespace innkeeper::test
