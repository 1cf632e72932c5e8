// Environments as lists of "NAME=value", as execve() takes them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace innkeeper::queue {

// This process's.
std::vector<std::string> own_environment();

// The value of a name; the first entry of it counts, as for getenv().
std::optional<std::string> variable_in(const std::vector<std::string>& environment, std::string_view name);

void remove_variable(std::vector<std::string>& environment, std::string_view name);

// What says which cards a program may see, in the order of telemetry::Variables.
inline constexpr const char* kCardVariables[] = {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
                                                 "HIP_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"};

// In place of every entry of that name.
void set_variable(std::vector<std::string>& environment, std::string_view name, std::string_view value);

}  // namespace innkeeper::queue
