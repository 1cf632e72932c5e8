// Strong types, failures as values, checks, and the ownership of a node's memory.
#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "base/types.h"
#include "device/device_api.h"

namespace innkeeper {
namespace {

TEST(BytesTest, AddsSubtractsAndCompares) {
  Bytes size = KiB(1) + Bytes(24);
  EXPECT_EQ(size.count(), 1048);
  size -= KiB(2);
  EXPECT_EQ(size, Bytes(-1000));
  size += MiB(1);
  EXPECT_GT(size, KiB(1022));
  EXPECT_EQ(GiB(2) - GiB(1), MiB(1024));
}

TEST(BytesTest, IsNotMadeFromANumberByAccident) {
  EXPECT_FALSE((std::is_convertible_v<int64_t, Bytes>));
  EXPECT_FALSE((std::is_convertible_v<Bytes, int64_t>));
}

TEST(BytesTest, RoundUpIsTheNextMultipleOfTheAlignment) {
  EXPECT_EQ(round_up(Bytes(0)), Bytes(0));
  EXPECT_EQ(round_up(Bytes(1)), Bytes(64));
  EXPECT_EQ(round_up(Bytes(64)), Bytes(64));
  EXPECT_EQ(round_up(Bytes(65)), Bytes(128));
  EXPECT_EQ(round_up(GiB(3) + Bytes(7)), GiB(3) + Bytes(64));
}

TEST(BytesTest, ToStringIsExactWhenSmallAndShortWhenLarge) {
  EXPECT_EQ(to_string(Bytes(0)), "0 B");
  EXPECT_EQ(to_string(Bytes(10239)), "10239 B");
  EXPECT_EQ(to_string(KiB(10)), "10.0 KiB");
  EXPECT_EQ(to_string(MiB(64)), "64.0 MiB");
  EXPECT_EQ(to_string(MiB(1536)), "1.5 GiB");
  EXPECT_EQ(to_string(GiB(-3)), "-3.0 GiB");
  EXPECT_EQ(to_string(Bytes(-12)), "-12 B");
}

TEST(StatusTest, CarriesCodeAndMessage) {
  EXPECT_TRUE(Status::okay().ok());
  const Status failed(Code::out_of_memory, "asked 5 B, free 3 B");
  EXPECT_FALSE(failed.ok());
  EXPECT_EQ(failed.code(), Code::out_of_memory);
  EXPECT_EQ(failed.message(), "asked 5 B, free 3 B");
  EXPECT_STREQ(to_string(failed.code()), "out of memory");
}

TEST(StatusTest, EveryCodeHasItsOwnName) {
  const Code codes[] = {
      Code::ok,          Code::invalid_argument, Code::out_of_memory, Code::io_error, Code::device_failed,
      Code::device_lost, Code::unavailable,      Code::busy};
  for (const Code left : codes) {
    EXPECT_STRNE(to_string(left), "unknown");
    for (const Code right : codes) {
      if (left != right) {
        EXPECT_STRNE(to_string(left), to_string(right));
      }
    }
  }
}

Status fail_if(bool failing, int* steps) {
  IK_RETURN_IF_ERROR(failing ? Status(Code::busy, "later") : Status::okay());
  ++*steps;
  return Status::okay();
}

TEST(StatusTest, ReturnIfErrorLeavesWithTheFailure) {
  int steps = 0;
  EXPECT_TRUE(fail_if(false, &steps).ok());
  EXPECT_EQ(fail_if(true, &steps).code(), Code::busy);
  EXPECT_EQ(steps, 1);
}

TEST(ResultTest, HoldsAValueOrAFailure) {
  Result<std::string> good(std::string("here"));
  ASSERT_TRUE(good.ok());
  EXPECT_TRUE(good.status().ok());
  EXPECT_EQ(std::move(good).value(), "here");
  const Result<std::string> bad(Status(Code::io_error, "disk gone"));
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().message(), "disk gone");
}

TEST(ResultDeathTest, AnswersMisuseWithTheFailureItHolds) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Result<int> bad(Status(Code::io_error, "disk gone"));
  EXPECT_DEATH(static_cast<void>(bad.value()), "internal error at .*status.h:.*disk gone");
  EXPECT_DEATH(Result<int>(Status::okay()), "needs a failure");
}

TEST(LogTest, LevelsIncludeAllMoreUrgentOnes) {
  set_log_level(LogLevel::info);
  EXPECT_TRUE(log_enabled(LogLevel::error));
  EXPECT_TRUE(log_enabled(LogLevel::info));
  EXPECT_FALSE(log_enabled(LogLevel::debug));
  testing::internal::CaptureStderr();
  log(LogLevel::info, "seen");
  log(LogLevel::debug, "unseen");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "innkeeper info: seen\n");
  set_log_level(LogLevel::warn);
}

// Memory whose release counts into an int.
Memory counted(int* released) {
  return Memory(released, Bytes(64), released, [](void* context) { ++*static_cast<int*>(context); });
}

TEST(MemoryTest, ReleasesOnceAtTheEndOfItsLife) {
  int released = 0;
  {
    Memory memory = counted(&released);
    EXPECT_TRUE(memory);
    EXPECT_EQ(memory.size(), Bytes(64));
    EXPECT_EQ(memory.data(), &released);
  }
  EXPECT_EQ(released, 1);
}

TEST(MemoryTest, MovingHandsTheDutyOver) {
  int first_released = 0;
  int second_released = 0;
  Memory first = counted(&first_released);
  Memory second = counted(&second_released);
  first = std::move(second);
  EXPECT_EQ(first_released, 1);
  EXPECT_EQ(second_released, 0);
  Memory third(std::move(first));
  third.reset();
  third.reset();
  EXPECT_FALSE(third);
  EXPECT_EQ(third.size(), Bytes(0));
  EXPECT_EQ(first_released, 1);
  EXPECT_EQ(second_released, 1);
}

TEST(MemoryTest, TakeLeavesTheDutyToTheCaller) {
  int released = 0;
  Memory::Raw raw = counted(&released).take();
  EXPECT_EQ(released, 0);
  EXPECT_EQ(raw.data, &released);
  raw.release(raw.context);
  EXPECT_EQ(released, 1);
}

}  // namespace
}  // namespace innkeeper
