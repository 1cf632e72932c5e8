#include "device/numa.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "device/mapping.h"
#include "support/temporary_directory.h"

namespace innkeeper {
namespace {

TEST(Numa, AGpusNodeIsWhatTheSystemSays) {
  const test::TemporaryDirectory directory("numa-test");
  const std::filesystem::path& sys = directory.path();
  for (const auto& [address, text] : {std::pair("0000:3b:00.0", "1\n"), std::pair("0000:5e:00.0", "-1\n"),
                                      std::pair("0000:86:00.0", ""), std::pair("0000:af:00.0", "near\n")}) {
    std::filesystem::create_directories(sys / "bus/pci/devices" / address);
    std::ofstream(sys / "bus/pci/devices" / address / "numa_node") << text;
  }
  EXPECT_EQ(numa_node_of("0000:3b:00.0", sys), 1);
  for (const char* unknown : {"0000:5e:00.0", "0000:86:00.0", "0000:af:00.0", "0000:d8:00.0"})
    EXPECT_EQ(numa_node_of(unknown, sys), std::nullopt) << unknown;
}

TEST(Numa, PagesComeFromTheNodeThatIsPreferred) {
  void* const data = map_pages(kHugePage, Pages::huge).value();
  const Status preferred = prefer_numa_node(data, kHugePage, 0);
  int policy = -1;
  std::array<unsigned long, 16> nodes{};
  const bool told =
      ::syscall(SYS_get_mempolicy, &policy, nodes.data(), nodes.size() * 64, data, MPOL_F_ADDR) == 0;
  const Status beyond = prefer_numa_node(data, kHugePage, 1 << 20);
  const Status missing = prefer_numa_node(data, kHugePage, 1023);
  unmap_pages(data, kHugePage, Pages::huge);
  EXPECT_EQ(beyond.message(), "there is no NUMA node 1048576");
  EXPECT_FALSE(missing.ok());
  if (!preferred.ok() || !told) GTEST_SKIP() << "this system binds no memory: " << preferred.message();
  EXPECT_EQ(policy, MPOL_PREFERRED);
  EXPECT_EQ(nodes[0], 1u);
}

}  // namespace
}  // namespace innkeeper
