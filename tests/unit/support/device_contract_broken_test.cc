// Each check of the contract finds a device that breaks its clause.
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "support/core_rigs.h"
#include "support/device_contract.h"

namespace innkeeper::test {
namespace {

// Faults of a device.
enum class Flaw : uint8_t {
  charges_late,          // Takes memory before it asks for the charge.
  ignores_refusals,      // Takes memory whose charge was refused.
  charges_exact_sizes,   // Charges sizes that are not multiples of kAlignment.
  keeps_charges,         // Does not return the charge of an allocation that failed.
  charges_nothing_too,   // Charges kAlignment bytes for an allocation of none.
  closed_inside,         // Refuses use while it charges.
  misaligned,            // Returns addresses off by one byte.
  live_by_the_way,       // Counts requested bytes in live(), not present ones.
  trims_what_lives,      // Overwrites in trim() the memory that was copied in last.
  drops_a_byte,          // Loses the last byte of a copy that is not a multiple of kAlignment.
  refuses_no_bytes,      // Fails a copy of no bytes.
  ignores_waits,         // Lets no queue wait for another.
  swaps_copies,          // Swaps two copies in.
  everybodys_peer,       // Claims that it can copy from any device.
  forgets_first,         // Allocates for the compute queue, whichever queue is named.
  forgets_users,         // Frees in give_back() at once.
  waits_in_give_back,    // Makes the compute queue wait in give_back(), too.
  waits_in_allocate,     // Makes a copy wait for all kernels in allocate().
  records_nothing,       // Records events that cover no work.
  synchronizes_nothing,  // Waits neither in the device's synchronize() nor in its events'.
  asks_its_device,       // Fails events whose device has been destroyed.
  minds_null_events,     // Treats a null event as an error.
  ignores_strangers,     // Waits for no event of another device.
  hides_failures,        // Reports failed work as done.
  seems_there,           // Does not report its loss.
  mixes_threads_up,      // Copies into the memory allocated last by any thread.
};

class FlawedEvent final : public EventState {
 public:
  FlawedEvent(Flaw flaw, Event inner, std::shared_ptr<bool> there)
      : flaw_(flaw), inner_(std::move(inner)), there_(std::move(there)) {}
  bool done() override { return flaw_ == Flaw::synchronizes_nothing || inner_->done(); }
  Status synchronize() override {
    if (flaw_ == Flaw::synchronizes_nothing) return {};
    if (flaw_ == Flaw::asks_its_device && !*there_) return Status(Code::device_lost, "there is no device");
    const Status status = inner_->synchronize();
    return flaw_ == Flaw::hides_failures ? Status() : status;
  }
  const Event& inner() const { return inner_; }

 private:
  const Flaw flaw_;
  const Event inner_;
  const std::shared_ptr<bool> there_;
};

class FlawedDevice final : public Device, public Accountant {
 public:
  FlawedDevice(Flaw flaw, std::unique_ptr<Device> inner, Accountant& books)
      : flaw_(flaw), inner_(std::move(inner)), books_(books) {
    inner_->attach(Books::kDevice, this);
  }
  ~FlawedDevice() override { *there_ = false; }

  // Receives the charges of the inner device.
  Status charge(NodeId node, Bytes size) override {
    if (flaw_ == Flaw::charges_late) return {};
    if (flaw_ == Flaw::charges_exact_sizes) size = asked_;
    const Status status = books_.charge(node, size);
    return flaw_ == Flaw::ignores_refusals ? Status() : status;
  }
  void uncharge(NodeId node, Bytes size) noexcept override {
    if (flaw_ == Flaw::keeps_charges && !allocated_) return;
    if (flaw_ == Flaw::charges_exact_sizes) size = asked_;
    books_.uncharge(node, size);
  }

  NodeKind kind() const override { return inner_->kind(); }
  const std::string& name() const override { return inner_->name(); }
  void attach(NodeId, Accountant*) override {}
  using Device::allocate;
  Result<Memory> allocate(Bytes size, Queue first) override {
    if (flaw_ == Flaw::charges_nothing_too && size == Bytes(0)) size = Bytes(1);
    asked_ = size;
    inside_ = flaw_ == Flaw::closed_inside;
    allocated_ = false;
    const Bytes odd(flaw_ == Flaw::misaligned ? 1 : 0);
    Result<Memory> memory =
        inner_->allocate(size + odd, flaw_ == Flaw::forgets_first ? Queue::compute : first);
    allocated_ = true;
    inside_ = false;
    if (!memory.ok()) return memory;
    if (flaw_ == Flaw::waits_in_allocate) (void)inner_->wait(first, inner_->record(Queue::compute).value());
    if (flaw_ == Flaw::charges_late) (void)books_.charge(Books::kDevice, memory.value().size());
    last_ = memory.value().data();
    if (odd == Bytes(0)) return memory;
    const Bytes whole = memory.value().size();
    const Memory::Raw raw = memory.value().take();
    return Memory(static_cast<char*>(raw.data) + 1, whole, raw.context, raw.release);
  }
  void give_back(Memory memory, std::span<const Event> users) override {
    std::vector<Event> unwrapped;
    for (const Event& user : users) unwrapped.push_back(unwrap(user));
    if (flaw_ == Flaw::waits_in_give_back) inner_->order_after(unwrapped);
    if (flaw_ == Flaw::forgets_users) unwrapped.clear();
    inner_->give_back(std::move(memory), unwrapped);
  }
  Bytes live() const override { return inner_->live() + Bytes(flaw_ == Flaw::live_by_the_way ? 64 : 0); }

  Result<Event> record(Queue queue) override {
    return flaw_ == Flaw::records_nothing ? Event() : wrap(inner_->record(queue));
  }
  Status wait(Queue queue, const Event& event) override {
    if (event == nullptr && flaw_ == Flaw::minds_null_events) return Status(Code::invalid_argument, "null");
    const bool mine = dynamic_cast<const FlawedEvent*>(event.get()) != nullptr;
    if (flaw_ == Flaw::ignores_waits || (flaw_ == Flaw::ignores_strangers && !mine)) return {};
    const Status status = inner_->wait(queue, unwrap(event));
    return flaw_ == Flaw::hides_failures ? Status() : status;
  }
  Result<Event> copy_in(void* device, const void* host, Bytes size) override {
    if (inside_) return Status(Code::busy, "allocating");
    if (flaw_ == Flaw::mixes_threads_up) {
      std::this_thread::yield();
      device = last_;
    }
    if (flaw_ == Flaw::refuses_no_bytes && size == Bytes(0)) return Status(Code::invalid_argument, "nothing");
    filled_ = {device, size};
    if (flaw_ != Flaw::swaps_copies) return wrap(inner_->copy_in(device, host, size - odd_part(size)));
    if (!held_) {
      held_ = [=, this] { return inner_->copy_in(device, host, size); };
      return inner_->record(Queue::compute);
    }
    const Result<Event> second = inner_->copy_in(device, host, size);
    return second.ok() ? wrap(held_()) : second;
  }
  Result<Event> copy_out(void* host, const void* device, Bytes size) override {
    if (inside_) return Status(Code::busy, "allocating");
    return wrap(inner_->copy_out(host, device, size));
  }
  bool can_copy_from(const Device& peer) const override {
    return flaw_ == Flaw::everybodys_peer || inner_->can_copy_from(peer);
  }
  Result<Event> copy_peer(void* destination, Device& peer, const void* source, Bytes size) override {
    return wrap(inner_->copy_peer(destination, peer, source, size));
  }
  Bytes trim() override {
    if (flaw_ == Flaw::trims_what_lives && filled_.first != nullptr) {
      const Contents zeros(static_cast<size_t>(filled_.second.count()));
      (void)inner_->copy_in(filled_.first, zeros.data(), filled_.second).value()->synchronize();
    }
    return inner_->trim();
  }
  Status synchronize() override {
    return flaw_ == Flaw::synchronizes_nothing ? Status() : inner_->synchronize();
  }
  Status loss() const override { return inner_->loss(); }

 private:
  Bytes odd_part(Bytes size) const {
    return Bytes(flaw_ == Flaw::drops_a_byte && size.count() % kAlignment != 0 ? 1 : 0);
  }
  static Event unwrap(const Event& event) {
    const auto* mine = dynamic_cast<const FlawedEvent*>(event.get());
    return mine == nullptr ? event : mine->inner();
  }
  Result<Event> wrap(Result<Event> event) const {
    if (!event.ok()) return flaw_ == Flaw::hides_failures ? inner_->record(Queue::copy_in) : event;
    if (event.value() == nullptr) return event;
    return Event(std::make_shared<FlawedEvent>(flaw_, std::move(event).value(), there_));
  }

  const Flaw flaw_;
  const std::unique_ptr<Device> inner_;
  Accountant& books_;
  const std::shared_ptr<bool> there_ = std::make_shared<bool>(true);
  Bytes asked_{0};
  bool inside_ = false;
  bool allocated_ = false;
  std::atomic<void*> last_ = nullptr;
  std::pair<void*, Bytes> filled_;
  std::function<Result<Event>()> held_;
};

struct Broken {
  Flaw flaw;
  const char* check;
};

// For each check a flaw that it is to find; the device is a late simulated GPU, or one that fails.
constexpr Broken kBroken[] = {
    {Flaw::charges_late, "ChargesBeforeItTakes"},
    {Flaw::ignores_refusals, "TakesNothingThatIsRefused"},
    {Flaw::charges_exact_sizes, "GivesBackWhatItCharged"},
    {Flaw::keeps_charges, "WhatItHasNotIsNotCharged"},
    {Flaw::charges_nothing_too, "AskedForNothingItTakesNothing"},
    {Flaw::closed_inside, "MayBeUsedWhileItCharges"},
    {Flaw::misaligned, "PiecesAreAlignedAndApart"},
    {Flaw::live_by_the_way, "LiveIsARecount"},
    {Flaw::trims_what_lives, "TrimmingLeavesWhatIsAlive"},
    {Flaw::drops_a_byte, "BytesComeBack"},
    {Flaw::refuses_no_bytes, "NoBytesAreCopiedWithoutHarm"},
    {Flaw::ignores_waits, "CopiesOutWaitForCopiesIn"},
    {Flaw::swaps_copies, "ACopyLandsOnTopOfTheOneBefore"},
    {Flaw::ignores_waits, "PeersCopyInOrder"},
    {Flaw::everybodys_peer, "StrangersAreNoPeers"},
    {Flaw::ignores_waits, "CopiesOutWaitForKernels"},
    {Flaw::ignores_waits, "KernelsWaitForCopiesIn"},
    {Flaw::ignores_waits, "KernelsWaitForCopiesOut"},
    {Flaw::forgets_first, "MemoryComesAfterTheKernelsThatUsedIt"},
    {Flaw::forgets_users, "ACopyIsGivenMemoryAfterItsUsers"},
    {Flaw::forgets_users, "AKernelIsGivenMemoryAfterItsUsers"},
    {Flaw::waits_in_give_back, "OnlyWhoIsGivenMemoryWaits"},
    {Flaw::waits_in_allocate, "ACopyWaitsForNoKernelLaunchedSince"},
    {Flaw::records_nothing, "ARecordCoversWhatWasPutBefore"},
    {Flaw::synchronizes_nothing, "SynchronizeCoversAllQueues"},
    {Flaw::synchronizes_nothing, "WhatWasWaitedForIsDone"},
    {Flaw::synchronizes_nothing, "DoneIsSaidWhenItIsTrueAndInTime"},
    {Flaw::asks_its_device, "EventsMayOutliveTheirDevice"},
    {Flaw::minds_null_events, "ANullEventIsLongPast"},
    {Flaw::ignores_strangers, "OthersEventsAreWaitedFor"},
    {Flaw::hides_failures, "OthersFailuresAreTold"},
    {Flaw::hides_failures, "ACopyThatFailsSaysSoAndIsOver"},
    {Flaw::seems_there, "OnceLostItRefusesEverything"},
    {Flaw::mixes_threads_up, "ThreadsShareIt"},
};

std::string tried(const Broken& broken, const ContractCheck& check) {
  const RigKind kind =
      (check.needs & (kFailures | kLoss)) != 0 ? faulty_kind() : sim_kind("LateSim", sim::Visibility::late);
  RigKind flawed = kind;
  flawed.make = [&] {
    std::unique_ptr<Rig> rig = kind.make();
    rig->wrap([&](std::unique_ptr<Device> device) {
      return std::make_unique<FlawedDevice>(broken.flaw, std::move(device), rig->books());
    });
    return rig;
  };
  return verdict(flawed, check, /*steps=*/25);
}

TEST(BrokenContract, IsFound) {
  std::set<std::string> found;
  for (const ContractCheck& check : kDeviceContract) {
    for (const Broken& broken : kBroken) {
      if (broken.check != std::string(check.name)) continue;
      EXPECT_NE(tried(broken, check), "") << check.name << " passes a device that is flawed";
      found.insert(check.name);
    }
    EXPECT_TRUE(found.contains(check.name)) << check.name << " is shown no flaw";
  }
  EXPECT_EQ(found.size(), std::size(kBroken)) << "a flaw is for no check that there is";
}

}  // namespace
}  // namespace innkeeper::test
