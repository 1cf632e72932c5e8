// A survey in each of the forms that the program prints.
#pragma once

#include <string>
#include <vector>

#include "cli/screen.h"
#include "cli/survey.h"

namespace innkeeper::cli {

// "2 GPUs, driver 550.54.15, CUDA 12.4".
std::string heading(const Survey& survey);
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

// "3.0" of "3.0 / 139.0 GiB".
std::string gib(Bytes size);

}  // namespace innkeeper::cli
