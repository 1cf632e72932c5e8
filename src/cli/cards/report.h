// A survey in each of the forms that the program prints.
#pragma once

#include <string>
#include <vector>

#include "cli/cards/survey.h"
#include "cli/screen.h"

namespace innkeeper::cli {

// "driver 550.54.15, CUDA 12.4", as far as it is known.
std::string driver_text(const Survey& survey);
// "2 GPUs, 1 lease, 0 waiting", with `between` behind the GPUs.
std::string heading(const Survey& survey, const std::string& between = {});
Table cards_table(const Survey& survey, const Screen& screen);
Table leases_table(const Survey& survey, const Screen& screen);
Table line_table(const Survey& survey, const Screen& screen);       // who waits
Table users_table(const Survey& survey, const Screen& screen);      // processes on cards
Table residents_table(const Survey& survey, const Screen& screen);  // what managed devices hold
// One line each for what does not fit a table: lost cards, an unusable lease folder, what is not visible
// here.
std::vector<std::string> remarks(const Survey& survey);

// What the JSON documents look like is told by "schema": 1; keys are only added.
std::string to_json(const Survey& survey);
std::string leases_json(const Survey& survey);
std::string to_prometheus(const Survey& survey);

// "the GPU 00000000:21:00.0 GPU-...", as far as a card that does not work can still be told.
std::string name_of(const telemetry::LostCard& lost);

// "3.0" of "3.0 / 139.0 GiB".
std::string gib(Bytes size);

}  // namespace innkeeper::cli
