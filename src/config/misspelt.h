// Environment variables that look like settings but are none. They begin with INNKEEPER_, or differ from a
// setting's name by one or two letters.
#pragma once

#include <string>
#include <vector>

namespace innkeeper {

// Returns a line for each such variable of `environment`, which has the form of ::environ.
std::vector<std::string> misspelt_settings(const char* const* environment);

}  // namespace innkeeper
