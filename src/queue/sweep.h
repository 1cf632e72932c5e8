// Arrays and sweeps: one command that stands for many. Pure functions.
//
//   --array 0-9        ten jobs; {index} in the command is 0 to 9
//   --array 1,5,10-20:5
//   --sweep lr=0.1,0.01 --sweep wd=0,1e-4     four jobs; {lr} and {wd} in the command are the values
//
// Each value is also an environment variable: lr=0.1, and INNKEEPER_ARRAY_INDEX for the index. What stands in
// braces and is no axis stays as it is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "queue/job.h"

namespace innkeeper::queue {

inline constexpr size_t kMaxTasks = 100'000;

Result<std::vector<int64_t>> parse_array(std::string_view text);
Result<Axis> parse_axis(std::string_view text);

// One job of many: names and values.
using Values = std::vector<std::pair<std::string, std::string>>;

// Every combination, the last axis fastest; the index, if there is one, slowest. One without values if there
// is neither.
Result<std::vector<Values>> expand(const std::vector<int64_t>& indices, const std::vector<Axis>& sweep);

// The command with the values in place of their names in braces.
std::vector<std::string> substitute(const std::vector<std::string>& command, const Values& values);

// "lr=0.1", "INNKEEPER_ARRAY_INDEX=3".
std::vector<std::string> variables(const Values& values);

}  // namespace innkeeper::queue
