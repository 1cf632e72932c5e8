// Sizes, times, requests, arrays and sweeps: any text gives a value that makes sense, or a one-line reason.
// The fuzzer compares values with 128-bit arithmetic, and a written value is read back unchanged.
#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/size.h"
#include "fuzz/input.h"
#include "lease/request.h"
#include "queue/sweep.h"

namespace {

using namespace innkeeper;
__extension__ using Wide = unsigned __int128;

void check_refusal(const Status& status) {
  IK_CHECK(status.code() == Code::invalid_argument, status.message());
  IK_CHECK(!status.message().empty() && fuzz::is_one_line(status.message()), "a refusal is one plain line");
}

struct Unit {
  const char* name;
  uint64_t factor;
};

// The number at the beginning of `text` times the unit after it; none if either is missing, text follows, or
// it exceeds `most`.
template <class Units>
std::optional<uint64_t> naive(const std::string& text, const Units& units, uint64_t most) {
  size_t at = 0;
  Wide number = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    number = number * 10 + static_cast<Wide>(text[at] - '0');
    if (number > most) return std::nullopt;
  }
  if (at == 0) return std::nullopt;
  for (const Unit& unit : units)
    if (text.substr(at) == unit.name && number * unit.factor <= most)
      return static_cast<uint64_t>(number * unit.factor);
  return std::nullopt;
}

constexpr Unit kSizes[] = {
    {"B", 1}, {"KiB", 1ULL << 10}, {"MiB", 1ULL << 20}, {"GiB", 1ULL << 30}, {"TiB", 1ULL << 40}};
constexpr Unit kShortSizes[] = {
    {"B", 1},          {"KiB", 1ULL << 10}, {"MiB", 1ULL << 20}, {"GiB", 1ULL << 30}, {"TiB", 1ULL << 40},
    {"K", 1ULL << 10}, {"M", 1ULL << 20},   {"G", 1ULL << 30},   {"T", 1ULL << 40}};
constexpr Unit kTimes[] = {{"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
constexpr uint64_t kCentury = 100ULL * 365 * 86400;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string trimmed(const std::string& text) {
  const char* white = " \t\n\v\f\r";
  const size_t first = text.find_first_not_of(white);
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(white) - first + 1);
}

// The integer part of 0.DIGITS * factor, a power of 2: doubles the digits; each carry is one more bit.
uint64_t doubled(std::string digits, uint64_t factor) {
  uint64_t bits = 0;
  for (; factor > 1; factor /= 2) {
    int carry = 0;
    for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit) {
      const int twice = 2 * (*digit - '0') + carry;
      *digit = static_cast<char>('0' + twice % 10);
      carry = twice / 10;
    }
    bits = 2 * bits + static_cast<uint64_t>(carry);
  }
  return bits;
}

// As naive(), of a size: it may have a fraction, and white space around number and unit.
template <class Units>
std::optional<uint64_t> naive_size(const std::string& padded, const Units& units) {
  const std::string text = trimmed(padded);
  const size_t point =
      static_cast<size_t>(std::find_if_not(text.begin(), text.end(), is_digit) - text.begin());
  const bool has_fraction = point < text.size() && text[point] == '.';
  const auto after = std::find_if_not(text.begin() + static_cast<std::ptrdiff_t>(point + has_fraction),
                                      text.end(), is_digit);
  const std::string unit = trimmed(std::string(after, text.end()));
  if (!unit.empty() && is_digit(unit.front())) return std::nullopt;
  const auto whole = naive(text.substr(0, point) + unit, units, INT64_MAX);
  if (!whole || !has_fraction) return whole;
  const std::string fraction(text.begin() + static_cast<std::ptrdiff_t>(point + 1), after);
  if (fraction.empty()) return std::nullopt;
  return *whole + doubled(fraction, *naive("1" + unit, units, INT64_MAX));
}

template <class Units>
void check_size(const std::string& text, const Units& units, SizeUnits kind) {
  const Result<Bytes> size = parse_size(text, kind);
  const std::optional<uint64_t> expected = naive_size(text, units);
  IK_CHECK(size.ok() == expected.has_value(), text);
  if (!size.ok()) return check_refusal(size.status());
  IK_CHECK(static_cast<uint64_t>(size.value().count()) == *expected, text);
  IK_CHECK(!to_string(size.value()).empty());
}

void check_time(const std::string& text) {
  const auto time = lease::parse_duration(text);
  const std::optional<uint64_t> expected = naive(text, kTimes, kCentury);
  IK_CHECK(time.ok() == expected.has_value(), text);
  if (!time.ok()) return check_refusal(time.status());
  IK_CHECK(static_cast<uint64_t>(time.value().count()) == *expected * 1000, text);
}

void check_request(std::vector<std::string> arguments) {
  const std::vector<std::string> before = arguments;
  const Result<lease::Request> parsed = lease::parse_request(arguments);
  if (!parsed.ok()) {
    IK_CHECK(arguments == before, "refused, and words were taken");
    return check_refusal(parsed.status());
  }
  const lease::Request& request = parsed.value();
  IK_CHECK(lease::check(request).ok());
  IK_CHECK(request.count >= 1 && request.count <= static_cast<int>(lease::kMaxClaims));
  IK_CHECK(!request.memory || *request.memory > Bytes(0), "a lease of nothing");
  IK_CHECK(arguments.size() <= before.size());
  const auto separator = std::find(before.begin(), before.end(), "--");
  const auto kept = static_cast<size_t>(before.end() - separator);
  IK_CHECK(arguments.size() >= kept &&
               std::equal(separator, before.end(), arguments.end() - static_cast<std::ptrdiff_t>(kept)),
           "the words of the command were changed");
  IK_CHECK(fuzz::is_one_line(lease::describe(request)));
  std::vector<std::string> options = lease::to_options(request);
  const Result<lease::Request> again = lease::parse_request(options);
  IK_CHECK(again.ok() && options.empty(), "its own options are refused");
  IK_CHECK(again.value().count == request.count && again.value().memory == request.memory &&
               again.value().exclusive == request.exclusive && again.value().by == request.by &&
               again.value().wait == request.wait && again.value().wait_limit == request.wait_limit,
           "its own options are read as another request");
}

void check_array(const std::string& text) {
  const auto indices = queue::parse_array(text);
  if (!indices.ok()) return check_refusal(indices.status());
  if (indices.value().size() > 2000 && indices.value().size() <= queue::kMaxTasks) return;  // takes long
  const std::set<int64_t> once(indices.value().begin(), indices.value().end());
  IK_CHECK(!once.empty() && once.size() == indices.value().size() && once.size() <= queue::kMaxTasks);
  IK_CHECK(*once.begin() >= 0);
  std::string list;
  for (const int64_t index : indices.value()) list += (list.empty() ? "" : ",") + std::to_string(index);
  IK_CHECK(queue::parse_array(list).value() == indices.value(), "an array is read as another");
}

void check_sweep(const std::vector<std::string>& lines) {
  std::vector<queue::Axis> axes;
  size_t combinations = 1;
  for (const std::string& line : lines) {
    Result<queue::Axis> axis = queue::parse_axis(line);
    if (!axis.ok()) {
      check_refusal(axis.status());
      continue;
    }
    std::string values;
    for (const std::string& value : axis.value().values) values += (values.empty() ? "" : ",") + value;
    // An empty first value leaves no trace in `values`, which the fuzzer only compares.
    if (!axis.value().values.front().empty()) IK_CHECK(axis.value().name + "=" + values == line);
    combinations = std::min<size_t>(combinations * axis.value().values.size(), queue::kMaxTasks + 1);
    axes.push_back(std::move(axis).value());
  }
  if (combinations > 200) return;  // Slow, and the limit has a unit test.
  const auto all = queue::expand({}, axes);
  if (!all.ok()) return check_refusal(all.status());
  const std::set<queue::Values> once(all.value().begin(), all.value().end());
  IK_CHECK(all.value().size() == combinations, "a combination is missing");
  std::set<std::string> names;
  for (const queue::Axis& axis : axes) IK_CHECK(names.insert(axis.name).second, "an axis stands there twice");
  for (const queue::Values& values : all.value()) {
    IK_CHECK(values.size() == axes.size() && queue::variables(values).size() == axes.size());
    std::vector<std::string> command;
    std::vector<std::string> expected;
    for (const auto& [name, value] : values) {
      command.push_back("{" + name + "}-{?}");
      expected.push_back(value + "-{?}");
    }
    IK_CHECK(queue::substitute(command, values) == expected);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::vector<std::string> lines = fuzz::parts_of(text, '\n');
  for (const std::string& line : {lines[0], text}) {
    check_size(line, kSizes, SizeUnits::full);
    check_size(line, kShortSizes, SizeUnits::short_too);
    check_time(line);
    check_array(line);
  }
  check_request(lines);
  check_sweep(lines);
  return 0;
}
