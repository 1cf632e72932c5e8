// Settings of logind.conf(5) that decide whether a logout removes files.
#include "lease/logout.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/temporary_directory.h"

namespace innkeeper::lease {
namespace {

class Logout : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = root_ + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  bool removes() const { return logind_removes_ipc(root_); }
  const test::TemporaryDirectory directory_{"innkeeper-logout"};
  const std::string root_ = directory_.path();
};

TEST_F(Logout, RemovesWhereNothingIsSaid) {
  EXPECT_TRUE(removes());
  write("/etc/systemd/logind.conf", "[Login]\n#NAutoVTs=6\n#RemoveIPC=yes\n");
  EXPECT_TRUE(removes());
}

TEST_F(Logout, HasTheDistributionsDefaultFromAComment) {
  write("/usr/lib/systemd/logind.conf", "[Login]\n#RemoveIPC=no\n");
  EXPECT_FALSE(removes());
  write("/etc/systemd/logind.conf", "[Login]\n  RemoveIPC = true\n");
  EXPECT_TRUE(removes());
}

TEST_F(Logout, OfMoreFilesTheLastNameCountsAndOfOneNameTheFirstPlace) {
  write("/etc/systemd/logind.conf", "[Login]\nRemoveIPC=yes\n");
  write("/usr/lib/systemd/logind.conf.d/50-keep.conf", "[Login]\nRemoveIPC=off\n");
  EXPECT_FALSE(removes());
  write("/run/systemd/logind.conf.d/60.conf", "[Login]\nRemoveIPC=1\n");
  EXPECT_TRUE(removes());
  write("/etc/systemd/logind.conf.d/60.conf", "[Login]\n#RemoveIPC=1\n");
  EXPECT_FALSE(removes());
}

TEST_F(Logout, IgnoresWhatIsNoAnswer) {
  write("/etc/systemd/logind.conf", "RemoveIPC=no\nRemoveIPC=\nRemoveIPC=maybe\nRemoveIPCs=yes\nno equals\n");
  EXPECT_FALSE(removes());
  write("/etc/systemd/logind.conf.d/10.txt", "RemoveIPC=yes\n");
  EXPECT_FALSE(removes());
}

}  // namespace
}  // namespace innkeeper::lease
