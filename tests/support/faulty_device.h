// A device that fails on demand, around a real one: for each call that may fail, the plan decides.
// A query of its events changes nothing. (The simulator's own events do the work at the second query, so a
// program that polls hides a missing wait.)
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/device_api.h"
#include "sim/work_queue.h"

namespace innkeeper::test {

// DiskFault (faulty_disk.h) uses the bits between.
enum class Fault : uint16_t {
  allocation = 1,
  copy = 2,       // The device refuses the copy.
  late_copy = 4,  // A disk's copy is accepted and never made, and its event fails.
  order = 8,      // Record and wait.
  event = 256,    // The host's wait for an event ends, and fails.
};

// Selects the calls that fail. Thread safe; one plan may serve all devices of a machine.
class FaultPlan {
 public:
  // Fails the `nth` call (from 1) of those that `kinds` (bits of Fault) names, and the `more` calls after it.
  // If `between` is not 0, also fails the call that many calls after the nth.
  void arm(int64_t nth, unsigned kinds, int64_t more = 0, int64_t between = 0) {
    kinds_.store(kinds);
    last_.store(nth + more);
    first_.store(nth);
    another_.store(between == 0 ? 0 : nth + between);
    calls_.store(0);
    hits_.store(0);
  }
  void disarm() { kinds_.store(0); }
  int64_t calls() const { return calls_.load(); }
  int64_t hits() const { return hits_.load(); }

  // Called from inside every call that may fail, before it runs. Set while nothing runs.
  void set_watcher(std::function<void()> watcher) { watcher_ = std::move(watcher); }

  bool fails(Fault kind) {
    if (watcher_) watcher_();
    if ((kinds_.load() & static_cast<unsigned>(kind)) == 0) return false;
    const int64_t call = calls_.fetch_add(1) + 1;
    if ((call < first_.load() || call > last_.load()) && call != another_.load()) return false;
    hits_.fetch_add(1);
    return true;
  }

 private:
  std::function<void()> watcher_;
  std::atomic<unsigned> kinds_{0};
  std::atomic<int64_t> first_{0}, last_{0}, another_{0}, calls_{0}, hits_{0};
};

class FailedEvent final : public EventState {
 public:
  explicit FailedEvent(std::string what) : what_(std::move(what)) {}
  bool done() override { return true; }
  Status synchronize() override { return Status(Code::io_error, what_); }

 private:
  const std::string what_;
};

class StubbornEvent final : public EventState {
 public:
  StubbornEvent(Event inner, FaultPlan* plan) : inner_(std::move(inner)), plan_(plan) {}
  bool done() override {
    const auto* simulated = dynamic_cast<const sim::SimEvent*>(inner_.get());
    return simulated != nullptr ? simulated->passed() : inner_->done();
  }
  Status synchronize() override {
    const Status status = inner_->synchronize();
    if (plan_ == nullptr || !plan_->fails(Fault::event)) return status;
    return Status(Code::io_error, "injected: an event failed");
  }
  const Event& inner() const { return inner_; }

 private:
  const Event inner_;
  FaultPlan* const plan_;
};

class FaultyDevice final : public Device {
 public:
  // `plan` may be null: nothing fails. Without `peers` no device copies from another accelerator directly.
  // `unseen`: the accelerator states that it works unseen.
  FaultyDevice(std::unique_ptr<Device> inner, FaultPlan* plan, bool peers, bool unseen = false)
      : Device(&gone_), inner_(std::move(inner)), plan_(plan), peers_(peers), unseen_(unseen) {}

  // From now on it answers nothing any more, like a GPU that fell off its bus.
  void lose() { gone_.store(true); }
  Status loss() const override { return Status(Code::device_lost, name() + " is lost"); }

  NodeKind kind() const override { return inner_->kind(); }
  const std::string& name() const override { return inner_->name(); }
  void attach(NodeId self, Accountant* accountant) override { inner_->attach(self, accountant); }
  using Device::allocate;
  Result<Memory> allocate(Bytes size, Queue first) override {
    if (is_lost()) return loss();
    if (fails(Fault::allocation)) return Status(Code::out_of_memory, "injected: an allocation at " + name());
    return inner_->allocate(size, first);
  }
  void give_back(Memory memory, std::span<const Event> users) override {
    std::vector<Event> unwrapped;
    for (const Event& user : users) unwrapped.push_back(unwrap(user));
    inner_->give_back(std::move(memory), unwrapped);
  }
  void set_limit(Bytes limit) override { inner_->set_limit(limit); }
  Bytes live() const override { return inner_->live(); }
  Result<Event> record(Queue queue) override {
    if (is_lost()) return loss();
    if (fails(Fault::order)) return injected("a record");
    return stubborn(inner_->record(queue));
  }
  Status wait(Queue queue, const Event& event) override {
    if (is_lost()) return loss();
    if (fails(Fault::order)) return injected("a wait");
    return inner_->wait(queue, unwrap(event));
  }
  Result<Event> copy_in(void* device, const void* host, Bytes size) override {
    return copy([&] { return inner_->copy_in(device, host, size); });
  }
  Result<Event> copy_out(void* host, const void* device, Bytes size) override {
    return copy([&] { return inner_->copy_out(host, device, size); });
  }
  bool can_copy_from(const Device& peer) const override {
    return peers_ && inner_->can_copy_from(unwrap(peer));
  }
  Result<Event> copy_peer(void* destination, Device& peer, const void* source, Bytes size) override {
    return copy(
        [&] { return inner_->copy_peer(destination, const_cast<Device&>(unwrap(peer)), source, size); });
  }
  void set_listener(std::function<void()> listener) override { inner_->set_listener(std::move(listener)); }
  bool works_unseen() const override { return unseen_ && kind() == NodeKind::accelerator; }
  Bytes trim() override { return inner_->trim(); }
  Status synchronize() override { return inner_->synchronize(); }

 private:
  static Event unwrap(const Event& event) {
    const auto* wrapped = dynamic_cast<const StubbornEvent*>(event.get());
    return wrapped == nullptr ? event : wrapped->inner();
  }
  static const Device& unwrap(const Device& device) {
    const auto* faulty = dynamic_cast<const FaultyDevice*>(&device);
    return faulty == nullptr ? device : *faulty->inner_;
  }
  bool fails(Fault kind) { return plan_ != nullptr && plan_->fails(kind); }
  Status injected(const char* what) const {
    return Status(Code::io_error, std::string("injected: ") + what + " at " + inner_->name());
  }
  template <class Call>
  Result<Event> copy(Call&& call) {
    if (is_lost()) return loss();
    if (fails(Fault::copy)) return injected("a copy");
    if (kind() == NodeKind::disk && fails(Fault::late_copy)) {
      return Event(std::make_shared<FailedEvent>("injected: a late failure at " + name()));
    }
    return stubborn(call());
  }
  Result<Event> stubborn(Result<Event> event) const {
    if (!event.ok() || event.value() == nullptr) return event;
    return Event(std::make_shared<StubbornEvent>(std::move(event).value(), plan_));
  }

  std::atomic<bool> gone_{false};
  const std::unique_ptr<Device> inner_;
  FaultPlan* const plan_;
  const bool peers_;
  const bool unseen_;
};

}  // namespace innkeeper::test
