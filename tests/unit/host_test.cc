#include "device/host.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace innkeeper {
namespace {

// Grants up to a limit and remembers what is charged.
struct Ledger final : Accountant {
  int64_t limit = 0;
  int64_t charged = 0;
  Status charge(NodeId node, Bytes size) override {
    EXPECT_EQ(node, NodeId{3});
    if (charged + size.count() > limit) return Status(Code::out_of_memory, "over the budget");
    charged += size.count();
    return Status::okay();
  }
  void uncharge(NodeId node, Bytes size) noexcept override {
    EXPECT_EQ(node, NodeId{3});
    charged -= size.count();
  }
};

TEST(HostDevice, ChargesRoundedSizesAndGivesThemBack) {
  HostDevice host;
  Ledger ledger;
  ledger.limit = 256;
  host.attach(NodeId{3}, &ledger);
  {
    Result<Memory> memory = host.allocate(Bytes(100));
    ASSERT_TRUE(memory.ok());
    EXPECT_EQ(memory.value().size(), Bytes(128));
    EXPECT_EQ(ledger.charged, 128);
    EXPECT_EQ(host.live(), Bytes(128));
    EXPECT_FALSE(host.allocate(Bytes(129)).ok()) << "the accountant is the hard cap";
    EXPECT_EQ(host.live(), Bytes(128));
  }
  EXPECT_EQ(ledger.charged, 0);
  EXPECT_EQ(host.live(), Bytes(0));
}

TEST(HostDevice, GivesTheChargeBackWhenTheSystemRefuses) {
  HostDevice host;
  Ledger ledger;
  ledger.limit = int64_t{1} << 60;
  host.attach(NodeId{3}, &ledger);
  const Result<Memory> memory = host.allocate(Bytes(int64_t{1} << 50));
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.status().code(), Code::out_of_memory);
  EXPECT_EQ(ledger.charged, 0);
  EXPECT_EQ(host.allocate(Bytes(0)).status().message(), "host: asked 0 bytes");
  EXPECT_EQ(ledger.charged, 0);
}

TEST(HostDevice, CopiesAtOnce) {
  HostDevice host;
  Result<Memory> memory = host.allocate(Bytes(16));
  ASSERT_TRUE(memory.ok());
  const char text[16] = "fifteen letters";
  char back[16] = {};
  EXPECT_EQ(host.copy_in(memory.value().data(), text, Bytes(16)).value(), nullptr);
  EXPECT_EQ(host.copy_out(back, memory.value().data(), Bytes(16)).value(), nullptr);
  EXPECT_STREQ(back, text);
  EXPECT_EQ(host.record(Queue::compute).value(), nullptr);
  EXPECT_FALSE(host.can_copy_from(host));
  EXPECT_EQ(host.copy_peer(back, host, text, Bytes(16)).status().code(), Code::invalid_argument);
}

struct FailedEvent final : EventState {
  int waited = 0;
  bool done() override { return true; }
  Status synchronize() override {
    ++waited;
    return Status(Code::io_error, "the read failed");
  }
};

TEST(HostDevice, WaitingBlocksAndTellsOfFailure) {
  HostDevice host;
  const auto event = std::make_shared<FailedEvent>();
  EXPECT_TRUE(host.wait(Queue::compute, nullptr).ok());
  EXPECT_EQ(host.wait(Queue::compute, event).message(), "the read failed");
  EXPECT_EQ(event->waited, 1);
}

class HostMemoryLimit : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(root_ / "proc/self"); }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  Bytes limit() const { return host_memory_limit((root_ / "proc").string(), (root_ / "cgroup").string()); }
  Bytes physical() const {
    return Bytes(static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE));
  }

  std::filesystem::path root_ =
      std::filesystem::path(testing::TempDir()) / ("innkeeper_limit_" + std::to_string(::getpid()));
};

TEST_F(HostMemoryLimit, IsThePhysicalMemoryWithoutAGroup) { EXPECT_EQ(limit(), physical()); }

TEST_F(HostMemoryLimit, HoldsForTheGroupAndItsParentsInVersion2) {
  write("proc/self/cgroup", "0::/user/job\n");
  write("cgroup/user/job/memory.max", "max\n");
  EXPECT_EQ(limit(), physical());
  write("cgroup/user/memory.max", "67108864\n");
  EXPECT_EQ(limit(), MiB(64));
  write("cgroup/user/job/memory.max", "1048576\n");
  EXPECT_EQ(limit(), MiB(1));
}

TEST_F(HostMemoryLimit, HoldsInVersion1) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n");
  write("cgroup/memory/docker/abc/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(limit(), physical());
  write("cgroup/memory/memory.limit_in_bytes", "33554432\n");
  EXPECT_EQ(limit(), MiB(32));
}

}  // namespace
}  // namespace innkeeper
