// What every sub-command's file uses: how it is added to the program, how it fails, where its output goes.
//
// A sub-command is one file with one register_X(CLI::App&), named in main.cc. It adds its options and calls
// on_run() with what is to be done. Failures are thrown here, at the edge (class Failure); main.cc prints
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
// With the exit code that belongs to the Status of a lease call.
[[noreturn]] void fail(const Status& status);

// `body` gives the exit code. It is called when the whole command line has been read.
void on_run(CLI::App& command, std::function<int()> body);
// For a command that ends in "-- COMMAND ARGUMENTS...": what stands behind the first "--", never empty. Where
// `without_dashes` says so when the options have been read, the first word that is none of them begins the
// job.
void on_run_job(CLI::App& command, std::function<int(const std::vector<std::string>& job)> body,
                std::function<bool()> without_dashes = nullptr);

// Is it such a command?
bool takes_job(const CLI::App& command);
// What stood behind the first "--" of the program's command line. Set by main.cc before parsing.
void set_job(std::vector<std::string> job, bool given);
// The exit code of the body that ran.
int outcome();

// Writes all of it to standard output, or fails with kOutput.
void print(std::string_view text);
// Text for people on standard error, behind the name of who says it.
void note(std::string_view text, std::string_view name = "innkeeper");

// A name for messages: "innkeeper lease hold".
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
