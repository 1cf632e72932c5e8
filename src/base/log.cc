#include "base/log.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <optional>
#include <string>

namespace innkeeper {
namespace {

constexpr std::array<const char*, 4> kNames = {"error", "warn", "info", "debug"};

void write_line(LogLevel level, std::string_view message) {
  std::string line = std::string("innkeeper ") + kNames[static_cast<size_t>(level)] + ": ";
  line.append(message);
  line.push_back('\n');
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

std::string_view level_wanted() {
  const char* const value = std::getenv("INNKEEPER_LOG");
  return value == nullptr ? "" : value;
}

std::optional<int> level_from_environment() {
  const std::string_view wanted = level_wanted();
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (wanted == kNames[i]) return static_cast<int>(i);
  }
  // Python names the level "warning".
  if (wanted.empty() || wanted == "warning") return static_cast<int>(LogLevel::warn);
  return std::nullopt;
}

std::atomic<int>& current_level() {
  static std::atomic<int> level{level_from_environment().value_or(static_cast<int>(LogLevel::warn))};
  return level;
}

}  // namespace

std::string wrong_log_level() {
  if (level_from_environment()) return "";
  return "INNKEEPER_LOG: \"" + std::string(level_wanted()) +
         "\" is no level; expected error, warn, info or debug. Going on with warn";
}

void set_log_level(LogLevel level) {
  current_level().store(static_cast<int>(level), std::memory_order_relaxed);
}

bool log_enabled(LogLevel level) {
  return static_cast<int>(level) <= current_level().load(std::memory_order_relaxed);
}

void log(LogLevel level, std::string_view message) {
  if (log_enabled(level)) write_line(level, message);
}

}  // namespace innkeeper
