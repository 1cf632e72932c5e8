#include "lease/request.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/size.h"

namespace innkeeper::lease {
namespace {

constexpr std::array<By, 4> kModes = {By::free, By::ratio, By::power, By::utilization};

Status refuse(const std::string& message) { return Status(Code::invalid_argument, message); }

// Formats a byte count in the largest unit that keeps it whole.
std::string exact_size(Bytes size) {
  constexpr const char* kUnits[] = {"B", "K", "M", "G", "T"};
  int64_t count = size.count();
  int unit = 0;
  for (; unit < 4 && count != 0 && count % 1024 == 0; ++unit) count /= 1024;
  return std::to_string(count) + kUnits[unit];
}

Status set_count(Request& request, std::string_view value) {
  const auto [rest, error] = std::from_chars(value.data(), value.data() + value.size(), request.count);
  if (error != std::errc() || rest != value.data() + value.size() || request.count < 1 ||
      request.count > static_cast<int>(kMaxClaims))
    return refuse("--gpus " + printable(value) + ": expected a number of GPUs from 1 to " +
                  std::to_string(kMaxClaims));
  return Status::okay();
}

Status set_memory(Request& request, std::string_view value) {
  const Result<Bytes> size = value == "0" ? Bytes(0) : parse_size(value, SizeUnits::short_too);
  if (!size.ok()) return refuse("--mem: " + size.status().message());
  if (size.value() == Bytes(0))
    return refuse("--mem " + printable(value) + ": a lease of no memory holds nothing");
  request.memory = size.value();
  return Status::okay();
}

Status set_mode(Request& request, std::string_view value) {
  const Result<By> by = parse_by(value);
  if (!by.ok()) return refuse("--by " + by.status().message());
  request.by = by.value();
  return Status::okay();
}

Status set_sharing(Request& request, std::string_view name) {
  const bool exclusive = name == "--exclusive";
  if (request.exclusive.value_or(exclusive) != exclusive)
    return refuse("--share and --exclusive exclude each other");
  request.exclusive = exclusive;
  return Status::okay();
}

Status set_wait(Request& request, std::optional<std::string_view> value) {
  request.wait = true;
  if (!value) return Status::okay();
  const Result<std::chrono::milliseconds> limit = parse_duration(*value);
  if (!limit.ok()) return refuse("--wait: " + limit.status().message());
  request.wait_limit = limit.value();
  return Status::okay();
}

}  // namespace

const char* to_string(By by) {
  switch (by) {
    case By::free: return "free";
    case By::ratio: return "ratio";
    case By::power: return "power";
    case By::utilization: return "utilization";
  }
  return "?";
}

Result<By> parse_by(std::string_view mode) {
  for (const By by : kModes)
    if (mode == to_string(by)) return by;
  return refuse(printable(mode) + ": expected free, ratio, power or utilization");
}

Result<std::chrono::milliseconds> parse_duration(std::string_view text) {
  uint64_t number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(rest, static_cast<size_t>(text.data() + text.size() - rest));
  uint64_t seconds = 0;
  if (unit == "s") seconds = 1;
  if (unit == "m") seconds = 60;
  if (unit == "h") seconds = 3600;
  if (unit == "d") seconds = 86400;
  constexpr uint64_t kMost = std::chrono::seconds(kLongest).count();
  // A bare number is refused: Slurm's users mean minutes, other users seconds.
  if (error == std::errc() && unit.empty()) {
    const std::string number_text = std::to_string(number);
    return refuse("\"" + number_text + "\" has no unit: write " + number_text + "s, " + number_text +
                  "m (minutes), " + number_text + "h or " + number_text + "d");
  }
  if (error != std::errc() || seconds == 0 || number > kMost / seconds)
    return refuse("\"" + printable(text) +
                  "\" is no time, expected a whole number and s, m, h or d, as in 30s");
  return std::chrono::milliseconds(static_cast<int64_t>(number * seconds * 1000));
}

Result<Request> parse_request(std::vector<std::string>& arguments) {
  Request request;
  std::vector<std::string> rest;
  size_t i = 0;
  for (; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--" || argument.empty() || argument.front() != '-') break;
    const size_t equals = argument.find('=');
    std::string name = argument.substr(0, equals);
    std::optional<std::string> value;
    if (equals != std::string::npos) value = argument.substr(equals + 1);
    // Handles the short form, for example -n2.
    if (!argument.starts_with("--") && argument.starts_with("-n") && argument.size() > 2) {
      name = "-n";
      value = argument.substr(2);
    }
    const bool count = name == "--gpus" || name == "-n";
    const bool takes_value = count || name == "--mem" || name == "--by";
    if (takes_value && !value) {
      if (i + 1 == arguments.size()) return refuse(name + " needs a value");
      value = arguments[++i];
    }
    if (count) {
      IK_RETURN_IF_ERROR(set_count(request, *value));
    } else if (name == "--mem") {
      IK_RETURN_IF_ERROR(set_memory(request, *value));
    } else if (name == "--by") {
      IK_RETURN_IF_ERROR(set_mode(request, *value));
    } else if (name == "--wait") {
      IK_RETURN_IF_ERROR(set_wait(request, value));
    } else if ((name == "--share" || name == "--exclusive") && !value) {
      IK_RETURN_IF_ERROR(set_sharing(request, name));
    } else {
      rest.push_back(argument);
    }
  }
  rest.insert(rest.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.end());
  IK_RETURN_IF_ERROR(check(request));
  arguments = std::move(rest);
  return request;
}

std::vector<std::string> to_options(const Request& request) {
  std::vector<std::string> options = {"--gpus", std::to_string(request.count)};
  if (request.memory) options.insert(options.end(), {"--mem", exact_size(*request.memory)});
  if (request.exclusive) options.push_back(*request.exclusive ? "--exclusive" : "--share");
  if (request.by != By::free) options.insert(options.end(), {"--by", to_string(request.by)});
  if (request.wait_limit)
    options.push_back("--wait=" + std::to_string((request.wait_limit->count() + 999) / 1000) + "s");
  else if (request.wait)
    options.emplace_back("--wait");
  return options;
}

std::string describe(const Request& request) {
  const bool one = request.count == 1;
  std::string text =
      std::to_string(request.count) + (request.whole() ? " whole GPU" : " GPU") + (one ? "" : "s");
  if (request.memory) text += " with " + to_string(*request.memory) + (one ? "" : " each");
  return text;
}

Status check(const Request& request) {
  if (request.count < 1 || request.count > static_cast<int>(kMaxClaims))
    return refuse("asked for " + std::to_string(request.count) + " GPUs: expected 1 to " +
                  std::to_string(kMaxClaims));
  if (request.memory && *request.memory <= Bytes(0))
    return refuse("asked for " + std::to_string(request.memory->count()) +
                  " bytes of memory: expected 1 or more");
  if (!request.whole() && !request.memory) return refuse("--share needs --mem: how much of each GPU?");
  return request.expires_after ? check_expiry(*request.expires_after) : Status::okay();
}

Status check_expiry(std::chrono::milliseconds expires_after) {
  if (expires_after > std::chrono::milliseconds(0) && expires_after <= kLongest) return Status::okay();
  return refuse("a lease that expires after " + std::to_string(expires_after.count()) +
                " ms: expected more than none, and at most a century");
}

}  // namespace innkeeper::lease
