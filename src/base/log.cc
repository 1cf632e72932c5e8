#include "base/log.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
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

int level_from_environment() {
  const char* value = std::getenv("INNKEEPER_LOG");
  const std::string_view wanted = value == nullptr ? "" : value;
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (wanted == kNames[i]) return static_cast<int>(i);
  }
  if (wanted == "warning") return static_cast<int>(LogLevel::warn);  // as Python calls it
  if (!wanted.empty()) {
    write_line(LogLevel::warn, "INNKEEPER_LOG: \"" + std::string(wanted) +
                                   "\" is no level; expected error, warn, info or debug. Going on with warn");
  }
  return static_cast<int>(LogLevel::warn);
}

std::atomic<int>& current_level() {
  static std::atomic<int> level{level_from_environment()};
  return level;
}

}  // namespace

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
