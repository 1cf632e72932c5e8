// A simulated accelerator as the engine sees it.
#include <gtest/gtest.h>

#include <cstring>

#include "sim/accelerator.h"
#include "support/faulty_device.h"

namespace innkeeper::sim {
namespace {

constexpr size_t kSize = 4096;

std::shared_ptr<Accelerator> make_card(std::string name = "sim:0") {
  return std::make_shared<Accelerator>(
      Options{.name = std::move(name), .capacity = MiB(1), .visibility = Visibility::late});
}

// Grants up to a limit.
struct Ledger final : Accountant {
  int64_t limit = 1 << 20;
  int64_t charged = 0;
  Status charge(NodeId, Bytes size) override {
    if (charged + size.count() > limit) return Status(Code::out_of_memory, "over the budget");
    charged += size.count();
    return Status::okay();
  }
  void uncharge(NodeId, Bytes size) noexcept override { charged -= size.count(); }
};

TEST(SimDevice, ChargesFirstAndGivesBackWhenRefused) {
  const std::unique_ptr<Device> device = make_device(make_card());
  Ledger ledger;
  ledger.limit = 2 << 20;  // more than the card has
  device->attach(NodeId{0}, &ledger);
  EXPECT_EQ(device->kind(), NodeKind::accelerator);
  EXPECT_EQ(device->name(), "sim:0");
  Result<Memory> memory = device->allocate(Bytes(1000));
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(ledger.charged, 1024);
  EXPECT_EQ(device->live(), Bytes(1024));
  EXPECT_FALSE(device->allocate(MiB(1)).ok()) << "the card itself is full";
  EXPECT_FALSE(device->allocate(MiB(3)).ok()) << "over the budget";
  EXPECT_FALSE(device->allocate(Bytes(0)).ok());
  EXPECT_EQ(ledger.charged, 1024);
  memory.value().reset();
  EXPECT_EQ(ledger.charged, 0);
  EXPECT_EQ(device->live(), Bytes(0));
}

TEST(SimDevice, MovesBytesBetweenHostAndPeers) {
  const std::unique_ptr<Device> first = make_device(make_card());
  const std::unique_ptr<Device> second = make_device(make_card("sim:1"));
  const Memory a = std::move(first->allocate(Bytes(kSize))).value();
  const Memory b = std::move(second->allocate(Bytes(kSize))).value();
  unsigned char host[kSize];
  std::memset(host, 7, kSize);
  const Event in = first->copy_in(a.data(), host, Bytes(kSize)).value();
  ASSERT_TRUE(second->can_copy_from(*first));
  ASSERT_TRUE(second->wait(Queue::copy_in, in).ok());
  const Event across = second->copy_peer(b.data(), *first, a.data(), Bytes(kSize)).value();
  ASSERT_TRUE(second->wait(Queue::copy_out, across).ok());
  unsigned char back[kSize] = {};
  const Event out = second->copy_out(back, b.data(), Bytes(kSize)).value();
  EXPECT_FALSE(is_done(out));
  ASSERT_TRUE(out->synchronize().ok());
  EXPECT_EQ(std::memcmp(back, host, kSize), 0);
  EXPECT_TRUE(second->synchronize().ok());
}

// A disk's event is no accelerator's: the host waits for it, and hears how it went.
TEST(SimDevice, WaitsForOthersEventsAndTellsHowTheyWent) {
  const std::unique_ptr<Device> device = make_device(make_card());
  const Event failed = std::make_shared<test::FailedEvent>("the disk is gone");
  const Status status = device->wait(Queue::compute, failed);
  EXPECT_EQ(status.code(), Code::io_error);
  EXPECT_EQ(status.message(), "the disk is gone");
  EXPECT_TRUE(device->wait(Queue::compute, nullptr).ok());
}

}  // namespace
}  // namespace innkeeper::sim
