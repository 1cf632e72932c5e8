// Choice among several lease directories. All processes must choose the same one, whichever user made it and
// at any time; otherwise the same bytes are leased twice.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "lease/arbiter.h"
#include "support/environment.h"
#include "support/lease_fixture.h"
#include "support/temporary_directory.h"

namespace innkeeper::lease {
namespace {

class DirectoryChoiceTest : public ::testing::Test {
 protected:
  DirectoryChoiceTest() {
    directory_.open_to_all();
    for (const char* name : {"first", "second", "third"}) paths_.push_back(base_ + "/" + name);
  }

  // Makes the directory as `owner` would, with the owner's lock in it.
  void make(int index, uid_t owner, mode_t mode = 01777) {
    const std::string& path = paths_[static_cast<size_t>(index)];
    ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
    const std::string lock = path + "/" + kLockName;
    std::ofstream(lock).close();
    ASSERT_EQ(chmod(lock.c_str(), 0444), 0);
    for (const std::string& each : {lock, path}) ASSERT_EQ(chown(each.c_str(), owner, getegid()), 0);
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    // Waits, so that "made later" is later for the file system's clock, too.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  std::string chosen() const {
    const auto opened = Directory::open_best(paths_);
    return opened.ok() ? opened.value()->path().substr(base_.size() + 1) : opened.status().message();
  }
  // The kernel reports a file's time of creation (tmpfs since 5.18).
  bool births_are_known() const {
    struct statx about {};
    return statx(AT_FDCWD, base_.c_str(), 0, STATX_BTIME, &about) == 0 && (about.stx_mask & STATX_BTIME) != 0;
  }

  const test::TemporaryDirectory directory_{"directory-test"};
  const std::string base_ = directory_.path().string();
  std::vector<std::string> paths_;
};

TEST_F(DirectoryChoiceTest, RootsDirectoryGoesBeforeEveryOtherUsers) {
  IK_TEST_NEEDS_ROOT();
  make(2, 0);
  EXPECT_EQ(chosen(), "third");
  make(0, 12345);
  make(1, 23456);
  EXPECT_EQ(chosen(), "third");
  const auto opened = Directory::open_best(paths_).value();
  ASSERT_EQ(opened->others().size(), 2U);
  EXPECT_EQ(opened->others()[0].path, paths_[0]);
  EXPECT_EQ(opened->others()[0].owner, 12345U);
  EXPECT_EQ(opened->others()[0].why, "it is not root's");
  ASSERT_EQ(rename(paths_[0].c_str(), (base_ + "/away").c_str()), 0);
  make(0, 0);
  EXPECT_EQ(chosen(), "first") << "of root's the first in the list";
}

TEST_F(DirectoryChoiceTest, OfOthersTheOneThatWasMadeFirst) {
  if (!births_are_known()) GTEST_SKIP() << "this file system does not say when a file was made";
  const uid_t someone = geteuid() == 0 ? 12345 : geteuid();
  make(1, someone);
  make(0, someone);
  make(2, someone);
  EXPECT_EQ(chosen(), "second");
  // Later changes inside the directory do not make it younger.
  ASSERT_EQ(chmod(paths_[1].c_str(), 01775), 0);
  std::ofstream(paths_[1] + "/file").close();
  EXPECT_EQ(chosen(), "second");
  EXPECT_EQ(Directory::open_best(paths_).value()->others().at(0).why, "it was made later");
}

// Other processes may see the directory differently, and use it.
TEST_F(DirectoryChoiceTest, OneThatCannotBeUsedIsAnErrorUnlessThereIsRoots) {
  make(1, geteuid() == 0 ? 12345 : geteuid());
  ASSERT_EQ(symlink(paths_[1].c_str(), paths_[0].c_str()), 0);
  EXPECT_EQ(chosen(), "cannot open the lease directory " + paths_[0] +
                          ": Not a directory; `innkeeper setup`, as root, makes one that is used before it");
  ASSERT_EQ(unlink(paths_[0].c_str()), 0);
  std::ofstream(paths_[0]).close();
  EXPECT_NE(chosen().find("Not a directory"), std::string::npos);
  IK_TEST_NEEDS_ROOT();
  make(2, 0);
  EXPECT_EQ(chosen(), "third");
  const auto opened = Directory::open_best(paths_).value();
  ASSERT_EQ(opened->others().size(), 2U);
  EXPECT_NE(opened->others()[0].why.find("Not a directory"), std::string::npos);
}

TEST_F(DirectoryChoiceTest, WithoutTheStickyBitAGroupsDirectoryIsRefusedToo) {
  make(0, geteuid(), 02775);
  EXPECT_NE(chosen().find("everybody of its group may remove everybody's leases: chmod +t " + paths_[0]),
            std::string::npos)
      << chosen();
  ASSERT_EQ(chmod(paths_[0].c_str(), 03775), 0);
  EXPECT_EQ(chosen(), "first");
  ASSERT_EQ(chmod(paths_[0].c_str(), 0700), 0);
  EXPECT_EQ(chosen(), "first") << "one's own";
}

TEST_F(DirectoryChoiceTest, ItProtectsIfItAndItsLockAreRoots) {
  make(0, geteuid());
  EXPECT_EQ(Directory::open_best(paths_).value()->protects(), geteuid() == 0);
  EXPECT_TRUE(Directory::open_best(paths_).value()->writable());
  IK_TEST_NEEDS_ROOT();
  const std::string lock = paths_[0] + "/" + kLockName;
  ASSERT_EQ(chown(lock.c_str(), 12345, 12345), 0);
  EXPECT_FALSE(Directory::open_best(paths_).value()->protects());
  ASSERT_EQ(unlink(lock.c_str()), 0);
  EXPECT_FALSE(Directory::open_best(paths_).value()->protects()) << "anybody may make it";
  ASSERT_EQ(symlink("/etc/passwd", lock.c_str()), 0);
  EXPECT_FALSE(Directory::open_best(paths_).value()->protects());
  ASSERT_EQ(unlink(lock.c_str()), 0);
  std::ofstream(lock).close();
  EXPECT_TRUE(Directory::open_best(paths_).value()->protects());
  ASSERT_EQ(chown(paths_[0].c_str(), 12345, 0), 0);
  EXPECT_FALSE(Directory::open_best(paths_).value()->protects());
}

// An arbiter opened before grants nothing in a directory that a process starting now would not choose.
TEST_F(DirectoryChoiceTest, WhatIsNotSeenByOthersIsNotGranted) {
  IK_TEST_NEEDS_ROOT();
  make(0, 12345);
  const auto directory = Directory::open_best(paths_).value();
  Arbiter arbiter(directory);
  const Machine machine = idle_machine(1);
  Lease before = arbiter.acquire(share(GiB(1)), machine).value();
  EXPECT_FALSE(directory->superseded());
  make(2, 0);
  EXPECT_TRUE(directory->superseded());
  const Result<Lease> refused = arbiter.acquire(share(GiB(1)), machine);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("not in " + paths_[0] + " any more"), std::string::npos);
  EXPECT_FALSE(arbiter.resize(before, GiB(2), machine).ok());
  before.release();
  // An arbiter opened later sees all leases.
  EXPECT_TRUE(Arbiter(Directory::open_best(paths_).value()).acquire(share(GiB(1)), machine).ok());
}

TEST_F(DirectoryChoiceTest, ADirectoryThatWasMovedAwayIsAnother) {
  const auto directory = Directory::open(paths_[0]).value();
  Arbiter arbiter(directory);
  EXPECT_TRUE(arbiter.acquire(share(GiB(1)), idle_machine(1)).ok());
  ASSERT_EQ(rename(paths_[0].c_str(), paths_[1].c_str()), 0);
  EXPECT_FALSE(arbiter.acquire(share(GiB(1)), idle_machine(1)).ok()) << "nobody is there";
  const auto other = Directory::open(paths_[0]).value();
  EXPECT_FALSE(arbiter.acquire(share(GiB(1)), idle_machine(1)).ok()) << "somebody else is";
  EXPECT_TRUE(Arbiter(other).acquire(share(GiB(1)), idle_machine(1)).ok());
}

TEST_F(DirectoryChoiceTest, ANameThatDependsOnWhereOneIsIsRefused) {
  test::Environment environment;
  environment.set("INNKEEPER_LEASE_DIR", "leases");
  for (const auto& directory : {Directory::open_default(), Directory::find_default()}) {
    EXPECT_EQ(directory.status().code(), Code::io_error);
    EXPECT_NE(directory.status().message().find("\"leases\""), std::string::npos);
  }
  EXPECT_FALSE(std::filesystem::exists("leases"));
}

}  // namespace
}  // namespace innkeeper::lease
