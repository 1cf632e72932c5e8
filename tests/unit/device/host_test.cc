#include "device/host.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "support/temporary_directory.h"

namespace innkeeper {
namespace {

// Copies on the host end before the call returns.
TEST(HostDevice, HasNoEvents) {
  HostDevice host;
  const Memory memory = host.allocate(Bytes(16)).value();
  const char text[16] = "fifteen letters";
  char back[16] = {};
  EXPECT_EQ(host.copy_in(memory.data(), text, Bytes(16)).value(), nullptr);
  EXPECT_EQ(host.copy_out(back, memory.data(), Bytes(16)).value(), nullptr);
  EXPECT_STREQ(back, text);
  EXPECT_EQ(host.record(Queue::compute).value(), nullptr);
}

class HostMemoryLimit : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(root_ / "proc/self"); }
  void write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  Bytes limit() const { return host_memory_limit((root_ / "proc").string(), (root_ / "cgroup").string()); }
  Bytes physical() const {
    return Bytes(static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE));
  }

  const test::TemporaryDirectory directory_{"host-test"};
  const std::filesystem::path& root_ = directory_.path();
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
