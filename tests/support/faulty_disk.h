// The system's calls under a disk node, some of which fail: short transfers, EIO, ENOSPC, no thread.
//
// DiskCalls are plain functions, so the process has one plan: a FaultyDisk must outlive its machine.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <functional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/check.h"
#include "device/spill_file.h"
#include "support/faulty_device.h"

namespace innkeeper::test {

enum class DiskFault : uint8_t {
  short_transfer = 16,  // Transfers half of the bytes; no failure.
  io_error = 32,
  no_space = 64,
  no_thread = 128,
};

class FaultyDisk {
 public:
  explicit FaultyDisk(FaultPlan* plan) {
    IK_CHECK(plan_ == nullptr);
    plan_ = plan;
  }
  ~FaultyDisk() { plan_ = nullptr; }
  FaultyDisk(const FaultyDisk&) = delete;
  FaultyDisk& operator=(const FaultyDisk&) = delete;

  static DiskCalls calls() {
    return {.write =
                [](int file, const void* data, size_t size, off_t offset) {
                  if (fails(DiskFault::io_error)) return refused(EIO);
                  if (fails(DiskFault::no_space)) return refused(ENOSPC);
                  return ::pwrite(file, data, part_of(size), offset);
                },
            .read =
                [](int file, void* data, size_t size, off_t offset) {
                  if (fails(DiskFault::io_error)) return refused(EIO);
                  return ::pread(file, data, part_of(size), offset);
                },
            .reserve =
                [](int file, int mode, off_t offset, off_t size) {
                  if (fails(DiskFault::no_space)) return static_cast<int>(refused(ENOSPC));
                  return DiskCalls::of_the_system().reserve(file, mode, offset, size);
                },
            .start =
                [](std::function<void()> work) {
                  if (fails(DiskFault::no_thread)) {
                    throw std::system_error(EAGAIN, std::generic_category(), "injected");
                  }
                  return std::thread(std::move(work));
                }};
  }

 private:
  static bool fails(DiskFault fault) { return plan_->fails(static_cast<Fault>(fault)); }
  static size_t part_of(size_t size) {
    return fails(DiskFault::short_transfer) && size > 1 ? size / 2 : size;
  }
  static ssize_t refused(int error) {
    errno = error;
    return -1;
  }

  inline static FaultPlan* plan_ = nullptr;
};

}  // namespace innkeeper::test
