// Arrays and sweeps: one command that stands for many. Pure functions.
//
//   --array 0-9        ten jobs; {index} in the command is 0 to 9
//   --array 1,5,10-20:5
//   --sweep lr=0.1,0.01 --sweep wd=0,1e-4     four jobs; {lr} and {wd} in the command are the values
//
// Each value is also an environment variable: lr=0.1, and INNKEEPER_ARRAY_INDEX for the index. Text in braces
// that names no axis stays as it is.
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

// Names and values of one job of an array or sweep.
using Values = std::vector<std::pair<std::string, std::string>>;

// Returns every combination; the last axis varies fastest and the index, if there is one, slowest. Returns
// one without values if there is neither.
Result<std::vector<Values>> expand(const std::vector<int64_t>& indices, const std::vector<Axis>& sweep);

// Returns the command with each name in braces replaced by its value.
std::vector<std::string> substitute(const std::vector<std::string>& command, const Values& values);

// Returns entries such as "lr=0.1" and "INNKEEPER_ARRAY_INDEX=3".
std::vector<std::string> variables(const Values& values);

}  // namespace innkeeper::queue
