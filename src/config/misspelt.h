// Environment variables that look like settings and are none: those that begin with INNKEEPER_, and those
// that differ from a setting's name by one or two letters.
#pragma once

#include <string>
#include <vector>

namespace innkeeper {

// A line for each such variable of `environment`, which is made as ::environ is.
std::vector<std::string> misspelt_settings(const char* const* environment);

}  // namespace innkeeper
