#include "base/size.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string>

#include "base/lines.h"
#include "base/printable.h"

namespace innkeeper {
namespace {

struct Unit {
  std::string_view name;
  int shift;
};
constexpr std::array<Unit, 5> kUnits = {{{"B", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}}};

constexpr size_t kMost = 60;  // Longest part of a wrong size in a message, bytes.

Status refuse(std::string_view text, const std::string& why) {
  return Status(Code::invalid_argument, "size " + in_quotes(text, kMost) + " " + why);
}

}  // namespace

Result<Bytes> parse_size(std::string_view text, SizeUnits units) {
  const bool short_too = units == SizeUnits::short_too;
  const std::string expected =
      short_too ? ", expected a whole number and one of B, K, M, G, T, KiB, MiB, GiB, TiB, as in 20G"
                : ", expected a whole number and one of B, KiB, MiB, GiB, TiB, as in 64MiB";
  if (text.empty()) return refuse(text, "is missing" + expected);
  if (text.front() == '-') return refuse(text, "is negative" + expected);
  uint64_t number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc::invalid_argument) return refuse(text, "has no number" + expected);
  const std::string_view name = text.substr(static_cast<size_t>(rest - text.data()));
  const std::string too_large =
      "is too large, at most " + std::to_string((uint64_t{1} << 23) - 1) + "TiB can be counted";
  if (error == std::errc::result_out_of_range) return refuse(text, too_large);
  if (name.empty()) return refuse(text, "has no unit" + expected);
  if (name.front() == '.') return refuse(text, "is not a whole number" + expected);
  for (const Unit& unit : kUnits) {
    const bool abbreviated = short_too && unit.shift > 0 && name == unit.name.substr(0, 1);
    if (name != unit.name && !abbreviated) continue;
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) >> unit.shift)
      return refuse(text, too_large);
    return Bytes(static_cast<int64_t>(number << unit.shift));
  }
  return refuse(text, "has the unknown unit " + in_quotes(name, kMost) + expected);
}

}  // namespace innkeeper
