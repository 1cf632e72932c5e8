// Settings that are almost right: variables that are none of ours, one or two letters from one that is.
#pragma once

#include <string>
#include <vector>

namespace innkeeper {

// A line for each such variable of `environment`, which is made as ::environ is.
std::vector<std::string> misspelt_settings(const char* const* environment);

}  // namespace innkeeper
