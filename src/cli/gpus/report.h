// Prints a survey in each output format of the program.
#pragma once

#include <string>
#include <vector>

#include "cli/gpus/survey.h"
#include "cli/screen.h"

namespace innkeeper::cli {

// Returns text such as "driver 550.54.15, CUDA 12.4", as far as it is known.
std::string driver_text(const Survey& survey);
// Returns text such as "2 GPUs, 1 lease, 0 waiting", with `between` after the GPUs.
std::string heading(const Survey& survey, const std::string& between = {});
Table gpus_table(const Survey& survey, const Screen& screen);
Table leases_table(const Survey& survey, const Screen& screen);
Table line_table(const Survey& survey, const Screen& screen);       // Waiting requests.
Table users_table(const Survey& survey, const Screen& screen);      // Processes on GPUs.
Table residents_table(const Survey& survey, const Screen& screen);  // Memory that managed devices hold.
// Returns one line for each remark that no table shows: lost GPUs, an unusable lease directory, or GPUs that
// are not visible here.
std::vector<std::string> remarks(const Survey& survey);

// Every JSON document names its format by "schema": 1; later versions only add keys.
std::string to_json(const Survey& survey);
std::string leases_json(const Survey& survey);
std::string to_prometheus(const Survey& survey);

// Returns text such as "the GPU 00000000:21:00.0 GPU-...", as far as a GPU that does not work
// can be identified.
std::string name_of(const telemetry::LostGpu& lost);

// Returns the number alone, for example "3.0" for "3.0 / 139.0 GiB".
std::string gib(Bytes size);

}  // namespace innkeeper::cli
