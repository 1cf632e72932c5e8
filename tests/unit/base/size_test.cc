// Sizes as users write them.
#include "base/size.h"

#include <gtest/gtest.h>

#include <string>

namespace innkeeper {
namespace {

TEST(Size, ReadsEveryUnit) {
  EXPECT_EQ(parse_size("0B").value(), Bytes(0));
  EXPECT_EQ(parse_size("123B").value(), Bytes(123));
  EXPECT_EQ(parse_size("3KiB").value(), KiB(3));
  EXPECT_EQ(parse_size("64MiB").value(), MiB(64));
  EXPECT_EQ(parse_size("20GiB").value(), GiB(20));
  EXPECT_EQ(parse_size("2TiB").value(), GiB(2048));
  EXPECT_EQ(parse_size("8388607TiB").value(), Bytes(int64_t{8388607} << 40));
  EXPECT_EQ(parse_size("9223372036854775807B").value(), Bytes(INT64_MAX));
}

TEST(Size, ReadsFractionsExactly) {
  EXPECT_EQ(parse_size("1.5MiB").value(), KiB(1536));
  EXPECT_EQ(parse_size("0.5GiB").value(), MiB(512));
  EXPECT_EQ(parse_size("1.50000KiB").value(), Bytes(1536));
  EXPECT_EQ(parse_size("1.9B").value(), Bytes(1));      // A fraction of a byte is cut off.
  EXPECT_EQ(parse_size("0.1KiB").value(), Bytes(102));  // 102.4
  EXPECT_EQ(parse_size("0.0009765625KiB").value(), Bytes(1));
  EXPECT_EQ(parse_size("0.00097656249999999999999999999999999999999999KiB").value(), Bytes(0));
  EXPECT_EQ(parse_size("8388607.999999999999999999999TiB").value(), Bytes(INT64_MAX));
  EXPECT_EQ(parse_size("1.5G", SizeUnits::short_too).value(), MiB(1536));
}

TEST(Size, MayHaveWhiteSpaceAroundNumberAndUnit) {
  EXPECT_EQ(parse_size("12 B").value(), Bytes(12));
  EXPECT_EQ(parse_size("1.5 MiB").value(), KiB(1536));
  EXPECT_EQ(parse_size(" 2TiB ").value(), GiB(2048));
  EXPECT_EQ(parse_size("\t64\nMiB\r\n").value(), MiB(64));
  EXPECT_EQ(parse_size("20 G", SizeUnits::short_too).value(), GiB(20));
}

struct BadSize {
  const char* text;
  const char* message;
};

TEST(Size, SaysWhatIsWrong) {
  const std::string expected = ", expected a number and one of B, KiB, MiB, GiB, TiB, as in 64MiB";
  const BadSize cases[] = {
      {"", "is missing"},
      {"64", "has no unit"},
      {"-1GiB", "is negative"},
      {"MiB", "has no number"},
      {" ", "is missing"},
      {" -1GiB", "is negative"},
      {" MiB", "has no number"},
      {".5GiB", "has no number"},
      {"+1GiB", "has no number"},
      {"1.GiB", "has no digit after its point"},
      {"1. 5GiB", "has no digit after its point"},
      {"1.5", "has no unit"},
      {"64 ", "has no unit"},
      {"64MB", "has the unknown unit \"MB\""},
      {"64MiB 1", "has the unknown unit \"MiB 1\""},
      {"6 4MiB", "has the unknown unit \"4MiB\""},
      {"1.5.5GiB", "has the unknown unit \".5GiB\""},
      {"1e3B", "has the unknown unit \"e3B\""},
      {"0x1B", "has the unknown unit \"x1B\""},
      {"8G", "has the unknown unit \"G\""},
      {"64mib", "has the unknown unit \"mib\""},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_EQ(parse_size(text).status().message(),
              "size \"" + std::string(text) + "\" " + message + expected);
  }
  for (const char* text : {"8388608TiB", "9223372036854775808B", "99999999999999999999999B"}) {
    EXPECT_EQ(parse_size(text).status().message(),
              "size \"" + std::string(text) + "\" is too large, at most 8388607TiB can be counted");
  }
}

}  // namespace
}  // namespace innkeeper
