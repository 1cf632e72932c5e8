// Log lines on standard error. The level comes from INNKEEPER_LOG (error, warn, info, debug; default warn)
// and can be changed at run time. Thread safe; a line is written by one system call.
#pragma once

#include <string>
#include <string_view>

namespace innkeeper {

enum class LogLevel { error = 0, warn = 1, info = 2, debug = 3 };

// Returns a line about an invalid INNKEEPER_LOG; empty if it is valid.
std::string wrong_log_level();

void set_log_level(LogLevel level);
bool log_enabled(LogLevel level);
void log(LogLevel level, std::string_view message);

}  // namespace innkeeper
