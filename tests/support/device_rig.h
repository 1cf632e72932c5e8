// A device on trial, with everything that device_contract.h needs besides the device itself. Each device has
// a Rig, which makes it and supplies what device_api.h leaves to others: kernels, faults, loss.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/device_api.h"
#include "support/contents.h"

namespace innkeeper::test {

// Features that not every device has, as bits.
enum Offer : unsigned {
  kKernels = 1,    // Kernels: fill() and look().
  kPeer = 2,       // A device of its make that it copies from.
  kFull = 4,       // A limit of its memory.
  kReuses = 8,     // Freed memory is given next.
  kLate = 16,      // No work runs before a thread waits for it.
  kPolls = 32,     // An event reports its completion in time, without a thread that waits.
  kFailures = 64,  // Copies fail on demand.
  kLoss = 128,     // The device can be lost.
};

// Grants up to a limit and counts its grants.
class Books final : public Accountant {
 public:
  static constexpr NodeId kDevice{0}, kPeerNode{1};

  Status charge(NodeId node, Bytes size) override {
    if (on_charge) on_charge();
    std::atomic<int64_t>& used = used_[index_of(node)];
    if (used.fetch_add(size.count()) + size.count() <= limit) return {};
    used -= size.count();
    return Status(Code::out_of_memory, "over the budget");
  }
  void uncharge(NodeId node, Bytes size) noexcept override {
    if (on_uncharge) on_uncharge();
    used_[index_of(node)] -= size.count();
  }
  Bytes charged(NodeId node = kDevice) const { return Bytes(used_[index_of(node)]); }
  // Clears the accounts for the next trial, where a process has only one accountant.
  void open() {
    for (std::atomic<int64_t>& used : used_) used = 0;
    limit = kNoLimit;
    on_charge = on_uncharge = nullptr;
  }

  // Limit in bytes, and hooks of the calls. Set while no other thread uses the device.
  int64_t limit = kNoLimit;
  std::function<void()> on_charge, on_uncharge;

 private:
  static constexpr int64_t kNoLimit = INT64_MAX / 2;
  std::atomic<int64_t> used_[2] = {};
};

class Rig {
 public:
  virtual ~Rig() = default;
  virtual Books& books() = 0;
  Device& device() { return *device_; }
  virtual Device& peer() { return *peer_; }
  // Kernels on the device's compute queue: fill() writes one byte everywhere, look() returns it; -1: the
  // bytes differ.
  virtual void fill(void* /*data*/, Bytes /*size*/, int /*value*/) {}
  virtual int look(const void* /*data*/, Bytes /*size*/) { return -1; }
  // Bytes charged for an allocation; more for a device that takes larger pieces.
  virtual Bytes charge_of(Bytes size) const { return round_up(size); }
  // More bytes than the device has; 0: unlimited.
  virtual Bytes too_much() const { return Bytes(0); }
  virtual void fail_next_copy() {}
  virtual void lose() {}
  // Host memory that copies will touch. Lives as long as the rig.
  virtual void lock(Contents& /*memory*/) {}

  using Wrap = std::function<std::unique_ptr<Device>(std::unique_ptr<Device>)>;
  void wrap(const Wrap& around) { device_ = around(std::move(device_)); }
  // Destroys the device; the other parts of the rig stay.
  void end_device() { device_.reset(); }
  bool has_device() const { return device_ != nullptr; }

 protected:
  std::unique_ptr<Device> peer_, device_;
};

struct RigKind {
  std::string name;
  unsigned offers = 0;
  std::function<std::unique_ptr<Rig>()> make;
};

// One check of one device: its tools, and the violations that it found.
class Trial {
 public:
  Trial(const RigKind& kind, int steps) : rig_(kind.make()), offers_(kind.offers), steps_(steps) {}

  Rig& rig() { return *rig_; }
  Device& device() { return rig_->device(); }
  Books& books() { return rig_->books(); }
  bool offers(Offer what) const { return (offers_ & what) != 0; }
  int steps() const { return steps_; }  // Steps of each thread, in a check with threads.

  // Called by any thread. Returns `holds`.
  bool expect(bool holds, const std::string& what,
              const std::source_location& where = std::source_location::current()) {
    if (holds) return true;
    const std::lock_guard lock(mutex_);
    broken_ += what + " (line " + std::to_string(where.line()) + ")\n";
    return false;
  }
  // All violations so far.
  const std::string& broken() const { return broken_; }

  // Allocates, by default for a copy in. Returns empty memory if the device refuses, which counts as a
  // violation.
  Memory take(Bytes size, Queue first = Queue::copy_in,
              const std::source_location& where = std::source_location::current()) {
    Result<Memory> memory = device().allocate(size, first);
    if (!expect(memory.ok(), "allocating: " + memory.status().message(), where)) return {};
    return std::move(memory).value();
  }
  Event queued(Result<Event> event, const std::source_location& where = std::source_location::current()) {
    if (!expect(event.ok(), event.status().message(), where)) return {};
    return std::move(event).value();
  }
  Event put(const Memory& memory, const Contents& bytes,
            const std::source_location& where = std::source_location::current()) {
    return queued(device().copy_in(memory.data(), bytes.data(), size_of(bytes)), where);
  }
  Event get(Contents& bytes, const Memory& memory,
            const std::source_location& where = std::source_location::current()) {
    return queued(device().copy_out(bytes.data(), memory.data(), size_of(bytes)), where);
  }
  void order(Queue queue, const Event& event,
             const std::source_location& where = std::source_location::current()) {
    const Status status = device().wait(queue, event);
    expect(status.ok(), "waiting: " + status.message(), where);
  }
  void finish(const Event& event, const std::source_location& where = std::source_location::current()) {
    const Status status = event == nullptr ? Status() : event->synchronize();
    expect(status.ok(), "finishing: " + status.message(), where);
  }
  void give_back(Memory memory, std::initializer_list<Event> users) {
    device().give_back(std::move(memory), std::span(users.begin(), users.size()));
  }
  // Releases memory that copies touch in the plain way (I5, I6).
  void drop(Memory memory, std::initializer_list<Event> users) {
    device().order_after(std::span(users.begin(), users.size()));
    memory.reset();
  }
  // Host memory for copies. It stays until the device is gone, so that a copy made too late does no harm.
  Contents& buffer(size_t size, unsigned char fill = 0) { return keep(Contents(size, fill)); }
  Contents& bytes(size_t size, uint64_t version) { return keep(pattern(size, version)); }
  // The bytes in `memory`, read after `event`.
  const Contents& read(const Memory& memory, size_t size, const Event& event) {
    Contents& bytes = buffer(size);
    order(Queue::copy_out, event);
    const Event out = get(bytes, memory);
    finish(out);
    device().order_after(std::span(&out, 1));
    return bytes;
  }

 private:
  static Bytes size_of(const Contents& bytes) { return Bytes(static_cast<int64_t>(bytes.size())); }

  Contents& keep(Contents contents) {
    const std::lock_guard lock(mutex_);
    Contents& kept = host_.emplace_back(std::move(contents));
    rig_->lock(kept);
    return kept;
  }

  std::mutex mutex_;
  std::string broken_;
  std::deque<Contents> host_;
  const std::unique_ptr<Rig> rig_;
  const unsigned offers_;
  const int steps_;
};

}  // namespace innkeeper::test
