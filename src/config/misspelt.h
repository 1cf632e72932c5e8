// Settings that nobody reads: variables that begin as ours do, or are one or two letters from one of them.
#pragma once

#include <string>
#include <vector>

namespace innkeeper {

// A line for each such variable of `environment`, which is made as ::environ is.
std::vector<std::string> misspelt_settings(const char* const* environment);

}  // namespace innkeeper
