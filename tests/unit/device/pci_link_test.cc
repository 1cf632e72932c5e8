#include "device/pci_link.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/temporary_directory.h"

namespace innkeeper {
namespace {

namespace fs = std::filesystem;

// A GPU in a port, as the system shows them: the directory by the GPU's address leads to one in the port's.
class PciLink : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(gpu);
    fs::create_directories(sys / "bus/pci/devices");
    fs::create_directory_symlink("../../../devices/0000:00:01.0/0000:3b:00.0", by_address);
  }

  void say(const char* speed, const char* width, const char* ports_speed) const {
    std::ofstream(gpu / "max_link_speed") << speed;
    std::ofstream(gpu / "current_link_width") << width;
    std::ofstream(gpu.parent_path() / "max_link_speed") << ports_speed;
  }
  std::optional<double> bandwidth() const { return pci_link_bandwidth("0000:3b:00.0", sys); }

  const test::TemporaryDirectory directory{"pci-link-test"};
  const fs::path& sys = directory.path();
  const fs::path gpu = sys / "devices/0000:00:01.0/0000:3b:00.0";
  const fs::path by_address = sys / "bus/pci/devices/0000:3b:00.0";
};

TEST_F(PciLink, IsWhatItsLanesWereMadeFor) {
  say("32.0 GT/s PCIe\n", "16\n", "32.0 GT/s PCIe\n");
  EXPECT_NEAR(bandwidth().value_or(0), 54e9, 1e9);
  say("16.0 GT/s PCIe\n", "8\n", "16.0 GT/s PCIe\n");
  EXPECT_NEAR(bandwidth().value_or(0), 13.4e9, 0.1e9);
}

TEST_F(PciLink, IsAsSlowAsThePortThatTheGpuIsIn) {
  say("32.0 GT/s PCIe\n", "16\n", "16.0 GT/s PCIe\n");
  EXPECT_NEAR(bandwidth().value_or(0), 27e9, 1e9);
  say("16.0 GT/s PCIe\n", "16\n", "Unknown\n");
  EXPECT_NEAR(bandwidth().value_or(0), 27e9, 1e9) << "the GPU's own, where nothing is known of the port";
}

TEST_F(PciLink, OfTheFirstGenerationsNeedsTenBitsForEight) {
  say("5.0 GT/s PCIe\n", "16\n", "8.0 GT/s PCIe\n");
  EXPECT_NEAR(bandwidth().value_or(0), 6.8e9, 0.1e9);
}

TEST_F(PciLink, IsUnknownWhereTheSystemDoesNotSay) {
  EXPECT_EQ(bandwidth(), std::nullopt) << "no such files";
  for (const auto& [speed, width] : {std::pair("Unknown\n", "16\n"), std::pair("32.0 GT/s PCIe\n", "0\n"),
                                     std::pair("", "16\n"), std::pair("-1\n", "16\n")}) {
    say(speed, width, "32.0 GT/s PCIe\n");
    EXPECT_EQ(bandwidth(), std::nullopt) << speed << width;
  }
  EXPECT_EQ(pci_link_bandwidth("0000:5e:00.0", sys), std::nullopt);
}

}  // namespace
}  // namespace innkeeper
