#include "device/disk.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>
#include <vector>

#include "device/checksum.h"
#include "support/soon.h"
#include "support/temporary_directory.h"

namespace innkeeper {
namespace {

// System calls that fail on command, and otherwise call the system's. Calls are counted from 0.
struct DiskFaults {
  std::atomic<int> write_error = 0;
  std::atomic<int> read_error = 0;
  std::atomic<int> reserve_error = 0;
  std::atomic<bool> short_writes = false;  // A transfer moves half of the bytes; the next moves none.
  std::atomic<bool> short_reads = false;
  std::atomic<bool> flip_a_bit = false;
  std::atomic<int> interruptions = 0;       // Number of coming reads and writes that a signal interrupts.
  std::atomic<off_t> capacity = INT64_MAX;  // Capacity of the disk, bytes.
  std::atomic<size_t> most = SIZE_MAX;      // Limit in bytes; larger writes wait until it grows.
} disk_faults;

bool interrupted() {
  if (disk_faults.interruptions == 0) return false;
  --disk_faults.interruptions;
  errno = EINTR;
  return true;
}

ssize_t faulty_write(int file, const void* data, size_t size, off_t offset) {
  if (interrupted()) return -1;
  while (size > disk_faults.most) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (disk_faults.write_error != 0) {
    errno = disk_faults.write_error;
    return -1;
  }
  if (disk_faults.short_writes) size = size > 4096 ? size / 8192 * 4096 : 0;
  return size == 0 ? 0 : ::pwrite(file, data, size, offset);
}

ssize_t faulty_read(int file, void* data, size_t size, off_t offset) {
  if (interrupted()) return -1;
  if (disk_faults.read_error != 0) {
    errno = disk_faults.read_error;
    return -1;
  }
  if (disk_faults.short_reads) size = size > 4096 ? size / 8192 * 4096 : 0;
  const ssize_t got = size == 0 ? 0 : ::pread(file, data, size, offset);
  if (disk_faults.flip_a_bit && got > 20) static_cast<char*>(data)[20] ^= 4;
  return got;
}

int faulty_reserve(int file, int mode, off_t offset, off_t size) {
  if (disk_faults.reserve_error != 0 || offset + size > disk_faults.capacity) {
    errno = disk_faults.reserve_error != 0 ? disk_faults.reserve_error.load() : ENOSPC;
    return -1;
  }
  return ::fallocate(file, mode, offset, size);
}

class Disk : public testing::TestWithParam<bool> {  // Parameter: whether the disk bypasses the page cache.
 protected:
  void SetUp() override { open(MiB(64)); }
  void TearDown() override {
    for (std::atomic<int>* error :
         {&disk_faults.write_error, &disk_faults.read_error, &disk_faults.reserve_error})
      *error = 0;
    for (std::atomic<bool>* fault :
         {&disk_faults.short_writes, &disk_faults.short_reads, &disk_faults.flip_a_bit})
      *fault = false;
    disk_faults.capacity = INT64_MAX;
    disk_faults.most = SIZE_MAX;
  }
  void open(Bytes capacity) {
    Result<std::unique_ptr<DiskDevice>> disk =
        DiskDevice::open({.path = path_,
                          .capacity = capacity,
                          .direct = GetParam(),
                          .calls = {faulty_write, faulty_read, faulty_reserve}});
    ASSERT_TRUE(disk.ok()) << disk.status().message();
    disk_ = std::move(disk).value();
    ASSERT_TRUE(GetParam() || !disk_->direct());
  }
  Memory take(Bytes size) {
    Result<Memory> memory = disk_->allocate(size);
    EXPECT_TRUE(memory.ok()) << memory.status().message();
    return std::move(memory).value();
  }
  Status write(const Memory& memory, const std::vector<char>& bytes) {
    return disk_->copy_in(memory.data(), bytes.data(), Bytes(static_cast<int64_t>(bytes.size())))
        .value()
        ->synchronize();
  }
  Status read(std::vector<char>& bytes, const Memory& memory) {
    return disk_->copy_out(bytes.data(), memory.data(), Bytes(static_cast<int64_t>(bytes.size())))
        .value()
        ->synchronize();
  }
  static std::vector<char> noise(size_t size, unsigned seed = 1) {
    std::mt19937_64 random(seed);
    std::vector<char> bytes(size);
    for (size_t i = 0; i < size; i += 8) {
      const uint64_t word = random();
      std::memcpy(bytes.data() + i, &word, std::min<size_t>(8, size - i));
    }
    return bytes;
  }

  const test::TemporaryDirectory directory_{"disk-test", test::TemporaryDirectory::Medium::disk};
  const std::string path_ = directory_.path().string();
  std::unique_ptr<DiskDevice> disk_;
};

INSTANTIATE_TEST_SUITE_P(Modes, Disk, testing::Values(true, false),
                         [](const auto& test) { return test.param ? "Direct" : "Cached"; });

TEST_P(Disk, LeavesNoFileInItsDirectory) {
  const Memory memory = take(MiB(1));
  ASSERT_TRUE(write(memory, noise(1 << 20)).ok());
  EXPECT_TRUE(std::filesystem::is_empty(path_)) << "I11";
}

TEST_P(Disk, CapacityIsHardAndSaidInNumbers) {
  open(KiB(16));
  Memory first = take(KiB(12));
  const Result<Memory> second = disk_->allocate(KiB(8));
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), Code::out_of_memory);
  EXPECT_EQ(second.status().message(), "disk is full: asked 8192 B, in use 12.0 KiB of 16.0 KiB in \"" +
                                           path_ + "\"; a larger disk node in INNKEEPER_NODES gives it more");
  EXPECT_EQ(disk_->live(), KiB(12));
  first.reset();
  take(KiB(16));
}

TEST_P(Disk, SpaceIsUsedAgainAndTrimmed) {
  std::vector<Memory> pieces;
  for (int i = 0; i < 4; ++i) pieces.push_back(take(KiB(8)));
  void* const second = pieces[1].data();
  pieces[1].reset();
  pieces[2].reset();
  EXPECT_EQ(take(KiB(16)).data(), second) << "neighbours are one free range again";
  pieces.clear();
  EXPECT_EQ(disk_->trim(), MiB(64));
  EXPECT_EQ(disk_->trim(), Bytes(0));
  const Memory again = take(KiB(8));
  EXPECT_TRUE(write(again, noise(8192)).ok());
}

TEST_P(Disk, AFullDiskShowsWhenSpaceIsTaken) {
  disk_faults.capacity = 64 << 10;
  const Memory first = take(KiB(48));  // The reservation of 64 MiB fails; one of the needed size succeeds.
  const Result<Memory> second = disk_->allocate(KiB(32));
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), Code::out_of_memory);
  EXPECT_EQ(second.status().message(),
            "disk: asked 32.0 KiB, \"" + path_ +
                "\" cannot hold more than the 48.0 KiB it has: No space left on device");
  EXPECT_EQ(disk_->live(), KiB(48));
  ASSERT_TRUE(write(first, noise(48 << 10)).ok());
  disk_faults.reserve_error = EOPNOTSUPP;  // Simulates a file system without reservations.
  EXPECT_TRUE(disk_->allocate(KiB(32)).ok());
}

TEST_P(Disk, WhatTheFileSystemRefusesIsNotInUse) {
  disk_faults.capacity = 64 << 10;
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(disk_->allocate(MiB(30)).ok());
  disk_faults.capacity = INT64_MAX;
  EXPECT_TRUE(disk_->allocate(MiB(60)).ok());
}

TEST_P(Disk, GoesOnWhereASignalInterruptedIt) {
  const Memory memory = take(KiB(64));
  const std::vector<char> bytes = noise(64 << 10);
  disk_faults.interruptions = 3;
  ASSERT_TRUE(write(memory, bytes).ok());
  EXPECT_EQ(disk_faults.interruptions, 0);
  disk_faults.interruptions = 3;
  std::vector<char> back(bytes.size());
  ASSERT_TRUE(read(back, memory).ok());
  EXPECT_EQ(disk_faults.interruptions, 0);
  EXPECT_EQ(back, bytes);
}

TEST_P(Disk, FailedWritesAreToldNowAndWhenRead) {
  const Memory memory = take(KiB(64));
  const std::vector<char> bytes = noise(64 << 10);
  ASSERT_TRUE(write(memory, bytes).ok());
  for (const int error : {ENOSPC, EIO}) {
    disk_faults.write_error = error;
    const Status status = write(memory, bytes);
    EXPECT_EQ(status.code(), Code::io_error);
    EXPECT_EQ(status.message(), "disk: write of 65536 bytes at offset 0 of the file in \"" + path_ +
                                    "\" stopped after 0: " + std::strerror(error));
    disk_faults.write_error = 0;
    std::vector<char> back(bytes.size());
    EXPECT_EQ(read(back, memory).message(),
              "disk: 64.0 KiB cannot be read, their last write to \"" + path_ + "\" failed");
    ASSERT_TRUE(write(memory, bytes).ok());
    EXPECT_TRUE(read(back, memory).ok());
  }
  disk_faults.short_writes = true;
  EXPECT_EQ(write(memory, bytes).message(), "disk: write of 65536 bytes at offset 0 of the file in \"" +
                                                path_ + "\" stopped after 61440: no more bytes");
}

TEST_P(Disk, FailedReadsAreTold) {
  const Memory memory = take(KiB(64));
  const std::vector<char> bytes = noise(64 << 10);
  ASSERT_TRUE(write(memory, bytes).ok());
  std::vector<char> back(bytes.size());
  disk_faults.read_error = EIO;
  EXPECT_EQ(read(back, memory).message(), "disk: read of 65536 bytes at offset 0 of the file in \"" + path_ +
                                              "\" stopped after 0: Input/output error");
  disk_faults.read_error = 0;
  disk_faults.short_reads = true;
  EXPECT_EQ(read(back, memory).message(), "disk: read of 65536 bytes at offset 0 of the file in \"" + path_ +
                                              "\" stopped after 61440: no more bytes");
  disk_faults.short_reads = false;
  ASSERT_TRUE(read(back, memory).ok()) << "the disk is well again";
  EXPECT_EQ(back, bytes);
}

TEST_P(Disk, AChangedBitIsNoticed) {
  const Memory memory = take(KiB(4));
  ASSERT_TRUE(write(memory, noise(4000)).ok());
  std::vector<char> back(4000);
  disk_faults.flip_a_bit = true;
  const Status status = read(back, memory);
  EXPECT_EQ(status.code(), Code::io_error);
  EXPECT_EQ(status.message(), "disk: 4000 bytes at offset 0 of the file in \"" + path_ +
                                  "\" came back changed (checksum): the disk or its memory is faulty");
}

TEST_P(Disk, RefusesCopiesThatMakeNoSense) {
  const Memory memory = take(Bytes(128));
  std::vector<char> bytes(256);
  auto* data = static_cast<char*>(memory.data());
  EXPECT_EQ(disk_->copy_in(data + 64, bytes.data(), Bytes(64)).status().code(), Code::invalid_argument);
  EXPECT_EQ(disk_->copy_in(data, bytes.data(), Bytes(129)).status().code(), Code::invalid_argument);
  EXPECT_EQ(disk_->copy_peer(data, *disk_, data, Bytes(64)).status().code(), Code::invalid_argument);
  bytes.resize(64);
  EXPECT_EQ(read(bytes, memory).message(), "disk: 64 bytes are read where 0 were written");
}

TEST_P(Disk, AFailureThatNoCallReportedIsReportedOnce) {
  EXPECT_EQ(disk_->record(Queue::copy_in).value(), nullptr);
  const Memory memory = take(KiB(64));
  const std::vector<char> bytes = noise(1 << 10);
  disk_faults.write_error = EIO;
  const Event failed = disk_->copy_in(memory.data(), bytes.data(), KiB(1)).value();
  EXPECT_TRUE(test::soon([&] { return failed->done(); }));
  EXPECT_EQ(disk_->synchronize().code(), Code::io_error) << "nobody has asked the event, so the queue tells";
  EXPECT_TRUE(failed->done());
  EXPECT_EQ(failed->synchronize().code(), Code::io_error);
  EXPECT_TRUE(disk_->synchronize().ok()) << "once";
}

TEST_P(Disk, AQueuesEventIsDoneWhenAllOfItIs) {
  const Memory small = take(KiB(4));
  const Memory large = take(KiB(64));
  const std::vector<char> bytes = noise(64 << 10);
  disk_faults.most = 0;
  const Event first = disk_->copy_in(small.data(), bytes.data(), KiB(4)).value();
  const Event second = disk_->copy_in(large.data(), bytes.data(), KiB(64)).value();
  const Event all = disk_->record(Queue::copy_in).value();
  disk_faults.most = 32 << 10;
  ASSERT_TRUE(first->synchronize().ok());
  EXPECT_FALSE(all->done());
  std::atomic<bool> waited{false};
  std::thread waits([&] {
    EXPECT_TRUE(all->synchronize().ok());
    waited = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(waited);
  disk_faults.most = SIZE_MAX;
  waits.join();
  EXPECT_TRUE(second->done() && all->done());
}

TEST_P(Disk, SpaceIsNotReusedUnderAWrite) {
  const std::vector<char> first = noise(1 << 20, 1);
  const std::vector<char> second = noise(1 << 20, 2);
  for (int i = 0; i < 8; ++i) {
    Memory gone = take(MiB(1));
    const Event writing = disk_->copy_in(gone.data(), first.data(), MiB(1)).value();
    gone.reset();  // Breaks the promise that both ends stay.
    const Memory next = take(MiB(1));
    ASSERT_TRUE(write(next, second).ok());
    ASSERT_TRUE(writing->synchronize().ok());
    std::vector<char> back(second.size());
    ASSERT_TRUE(read(back, next).ok());
    ASSERT_EQ(back, second);
  }
}

TEST_P(Disk, ASmallUlimitIsAFailureAndNotASignal) {
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const struct rlimit small { 1 << 20, before.rlim_max };
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Result<Memory> fits = disk_->allocate(KiB(512));
  const Result<Memory> beyond = disk_->allocate(MiB(2));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_TRUE(fits.ok()) << fits.status().message();
  EXPECT_EQ(beyond.status().message(), "disk: asked 2.0 MiB, the file in \"" + path_ +
                                           "\" is 1.0 MiB long and may be 1.0 MiB (ulimit -f)");
}

TEST(DiskOpen, SaysWhatIsWrong) {
  EXPECT_EQ(DiskDevice::open("/no/such/directory", MiB(1)).status().message(),
            "disk: no spill file in \"/no/such/directory\": No such file or directory");
  EXPECT_EQ(DiskDevice::open("/tmp", Bytes(0)).status().message(),
            "disk: a capacity of 0 B, expected 1 B to 32 TiB, as in disk:/tmp:8GiB");
  disk_faults.write_error = ENOSPC;
  EXPECT_EQ(DiskDevice::open(
                {.path = "/tmp", .capacity = MiB(1), .calls = {faulty_write, faulty_read, faulty_reserve}})
                .status()
                .message(),
            "disk: the spill file in \"/tmp\" takes no data: No space left on device");
  disk_faults.write_error = 0;
}

TEST(Checksum, SeesEveryBitAndEveryPart) {
  std::vector<unsigned char> bytes(1003, 0x5A);
  for (auto* function : {checksum, portable_checksum}) {
    const uint64_t plain = function(bytes.data(), bytes.size(), 0);
    EXPECT_EQ(function(bytes.data(), bytes.size(), 0), plain);
    for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
      ASSERT_NE(function(bytes.data(), bytes.size(), 0), plain) << bit;
      bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
    }
    EXPECT_NE(function(bytes.data(), bytes.size() - 1, 0), plain);
    EXPECT_NE(function(bytes.data(), bytes.size(), 1), plain);
  }
}

}  // namespace
}  // namespace innkeeper
