#include "base/size.h"

#include <algorithm>
#include <array>
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

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

size_t digits_at_front(std::string_view text) {
  return static_cast<size_t>(std::find_if_not(text.begin(), text.end(), is_digit) - text.begin());
}

std::string_view without_white_space(std::string_view text) {
  constexpr std::string_view kWhite = " \t\n\v\f\r";
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(kWhite)));
  return text.substr(0, text.find_last_not_of(kWhite) + 1);
}

// Returns the integer part of 0.DIGITS * 2^shift, by long multiplication from the last digit. It is exact for
// any number of digits, and `carry` stays below 2^shift.
uint64_t scaled_fraction(std::string_view digits, int shift) {
  uint64_t carry = 0;
  for (size_t i = digits.size(); i-- > 0;)
    carry = ((static_cast<uint64_t>(digits[i] - '0') << shift) + carry) / 10;
  return carry;
}

}  // namespace

Result<Bytes> parse_size(std::string_view text, SizeUnits units) {
  const bool short_too = units == SizeUnits::short_too;
  const std::string expected =
      short_too ? ", expected a number and one of B, K, M, G, T, KiB, MiB, GiB, TiB, as in 20G"
                : ", expected a number and one of B, KiB, MiB, GiB, TiB, as in 64MiB";
  std::string_view rest = without_white_space(text);
  if (rest.empty()) return refuse(text, "is missing" + expected);
  if (rest.front() == '-') return refuse(text, "is negative" + expected);
  const std::string_view whole = rest.substr(0, digits_at_front(rest));
  if (whole.empty()) return refuse(text, "has no number" + expected);
  rest.remove_prefix(whole.size());
  std::string_view fraction;
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    fraction = rest.substr(0, digits_at_front(rest));
    if (fraction.empty()) return refuse(text, "has no digit after its point" + expected);
    rest.remove_prefix(fraction.size());
  }
  const std::string too_large =
      "is too large, at most " + std::to_string((uint64_t{1} << 23) - 1) + "TiB can be counted";
  uint64_t number = 0;
  if (!read_number(whole, number)) return refuse(text, too_large);
  const std::string_view name = without_white_space(rest);
  if (name.empty()) return refuse(text, "has no unit" + expected);
  for (const Unit& unit : kUnits) {
    const bool abbreviated = short_too && unit.shift > 0 && name == unit.name.substr(0, 1);
    if (name != unit.name && !abbreviated) continue;
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) >> unit.shift)
      return refuse(text, too_large);
    return Bytes(static_cast<int64_t>((number << unit.shift) + scaled_fraction(fraction, unit.shift)));
  }
  return refuse(text, "has the unknown unit " + in_quotes(name, kMost) + expected);
}

}  // namespace innkeeper
