// Common functions of all sub-commands: registration, failure and output.
//
// A sub-command is one file with one register_X(CLI::App&), named in main.cc. That function adds its
// options and calls on_run() with its body. Failures are exceptions of class Failure; main.cc prints
// them in one line.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cli/exit_codes.h"

namespace CLI {
class App;
}

namespace innkeeper::cli {

// Ends the program with a line on standard error and this exit code.
struct Failure {
  int code;
  std::string message;
};
[[noreturn]] void fail(int code, std::string message);
// Fails with the exit code that belongs to the Status of a lease call.
[[noreturn]] void fail(const Status& status);

// Calls `body` when the whole command line has been read; its result is the exit code.
void on_run(CLI::App& command, std::function<int()> body);
// Registers a command that ends in "-- COMMAND ARGUMENTS...". `job` holds the words after the first "--",
// never empty. If `without_dashes` returns true after the options have been read, the job begins at the first
// word that is no option.
void on_run_job(CLI::App& command, std::function<int(const std::vector<std::string>& job)> body,
                std::function<bool()> without_dashes = nullptr);

// Returns whether the command was registered by on_run_job().
bool takes_job(const CLI::App& command);
// Stores the words after the first "--" of the program's command line. main.cc calls it before parsing.
void set_job(std::vector<std::string> job, bool given);
// Returns the exit code of the body that ran.
int outcome();

// Writes the whole text to standard output, or fails with kOutput.
void print(std::string_view text);
// Writes text for people to standard error, preceded by the name of its source.
void note(std::string_view text, std::string_view name = "innkeeper");

// Returns a name for messages, for example "innkeeper lease hold".
std::string full_name(const CLI::App& command);

std::string joined(const std::vector<std::string>& words, std::string_view between);

void register_calibrate(CLI::App& program);
void register_completion(CLI::App& program);
void register_doctor(CLI::App& program);
void register_lease(CLI::App& program);
void register_pick(CLI::App& program);
void register_replay(CLI::App& program);
void register_run(CLI::App& program);
void register_setup(CLI::App& program);
void register_status(CLI::App& program);
void register_top(CLI::App& program);

}  // namespace innkeeper::cli
