// Environments as lists of "NAME=value", the form that execve() takes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace innkeeper::queue {

// The environment of this process.
std::vector<std::string> own_environment();

// Returns the value of a name. Its first entry counts, as for getenv().
std::optional<std::string> variable_in(const std::vector<std::string>& environment, std::string_view name);

void remove_variable(std::vector<std::string>& environment, std::string_view name);

// Variables that define which GPUs a program may see, in the order of telemetry::Variables.
inline constexpr const char* kGpuVariables[] = {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
                                                "HIP_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"};

// Replaces every entry of that name by one.
void set_variable(std::vector<std::string>& environment, std::string_view name, std::string_view value);

}  // namespace innkeeper::queue
