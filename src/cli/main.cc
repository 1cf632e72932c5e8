// The program `innkeeper`. Each sub-command is a file below this directory with a register_X(), listed here.
#include <CLI/CLI.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "cli/command.h"
#include "cli/need_subcommand.h"
#include "cli/queue/common.h"
#include "config/misspelt.h"
#include "lease/request.h"

namespace innkeeper::cli {
namespace {

std::string exit_codes() {
  std::string text = "Exit codes:\n";
  for (const ExitMeaning& row : kExitMeanings) {
    std::string number = std::to_string(row.code);
    number.resize(5, ' ');
    text += "  " + number + row.meaning + "\n";
  }
  return text + "innkeeper run ends as its command does, slurm submit as sbatch does where that refuses.";
}

void add_commands(CLI::App& program) {
  register_status(program);
  register_top(program);
  register_pick(program);
  register_run(program);
  register_lease(program);
  register_queue(program);
  register_slurm(program);
  register_doctor(program);
  register_setup(program);
  register_calibrate(program);
  register_replay(program);
  register_completion(program);
}

// Returns the sub-command that the user named, for messages.
const CLI::App& named(const CLI::App& program) {
  const CLI::App* at = &program;
  for (std::vector<CLI::App*> below = program.get_subcommands(); !below.empty();
       below = at->get_subcommands())
    at = below.front();
  return *at;
}

int usage(const CLI::App& program, const std::string& message) {
  const std::string name = full_name(named(program));
  note(message + "\nTry: " + name + " --help", name);
  return kUsage;
}

// Finds an option that stands before its command.
std::optional<std::string> before_its_command(const CLI::App& command) {
  for (const CLI::App* above = command.get_parent(); above != nullptr; above = above->get_parent())
    for (const std::string& word : above->remaining())
      if (word.size() > 1 && word.front() == '-' && command.get_option_no_throw(word) != nullptr)
        return word + " goes behind the command, as in: " + full_name(command) + " " + word;
  return std::nullopt;
}

struct FormerOption {
  std::string_view command, former, present;
};
constexpr std::array<FormerOption, 1> kFormerOptions = {{{"replay", "--card", "--gpu"}}};

// The line that refuses an option's former name; none for any other word.
std::optional<std::string> renamed(const CLI::App& command, std::string_view word) {
  const std::string_view name = word.substr(0, word.find('='));
  for (const FormerOption& option : kFormerOptions)
    if (command.get_name() == option.command && name == option.former)
      return std::string(option.former) + " is called " + std::string(option.present) + " now";
  return std::nullopt;
}

// Explains words that the command does not know, and names likely alternatives.
std::string unexpected(const CLI::App& command, const std::string& otherwise) {
  const std::vector<std::string> words = command.remaining();
  if (words.empty()) return before_its_command(command).value_or(otherwise);
  const std::string& first = words.front();
  const std::string commands = below(command);
  if (const std::optional<std::string> line = renamed(command, first)) return *line;
  if (first.size() > 1 && first.front() == '-') return "there is no option " + first;
  if (!commands.empty()) return "there is no command " + first + "; there are " + commands;
  if (command.get_option_no_throw("--wait") != nullptr) {
    for (const char* unit : {"", "s"})
      if (lease::parse_duration(first + unit).ok())
        return first + " is out of place: a limit is written --wait=" + first + unit;
  }
  if (takes_job(command)) {
    const std::string whole = " " + joined(words, " ");
    const bool script = first.ends_with(".py");
    const bool runs = command.get_option_no_throw("--managed") != nullptr;
    return "\"" + first + "\" is out of place: " +
           (script && runs ? full_name(command) + " --managed" + whole + " runs it on the managed device; "
                           : "") +
           "the command goes behind --, as in: " + full_name(command) + " --mem 8G --" +
           (script ? " python" : "") + whole;
  }
  return first + " is not expected here";
}

// Joins CLI11's message into one line.
std::string one_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

int run(int argc, char** argv) {
  CLI::App program("Which GPUs: see them, lease them, run on them.", "innkeeper");
  program.set_version_flag("--version", "innkeeper " INNKEEPER_VERSION);
  add_commands(program);
  need_subcommand(program);
  program.footer(exit_codes());  // Set after the sub-commands were added, so that they do not inherit it.

  // The words after "--" belong to the job and are not parsed here.
  std::vector<std::string> words(argv + 1, argv + argc);
  const auto dashes = std::find(words.begin(), words.end(), "--");
  const bool given = dashes != words.end();
  set_job(given ? std::vector<std::string>(dashes + 1, words.end()) : std::vector<std::string>{}, given);
  words.erase(dashes, words.end());
  // A managed script's own process reports this.
  const auto says_it_itself = [](std::string_view word) {
    return word == "--managed" || word.starts_with("--nproc");
  };
  if (std::none_of(words.begin(), words.end(), says_it_itself)) {
    for (const std::string& line : misspelt_settings(environ)) note(line);
    if (const std::string level = wrong_log_level(); !level.empty()) note(level);
  }
  std::reverse(words.begin(), words.end());  // CLI11 expects the words in reverse order.
  try {
    program.parse(words);
    return outcome();
  } catch (const CLI::CallForHelp&) {
    print(program.help());  // CLI11 prints the help of the sub-command that was named, if any.
    return kDone;
  } catch (const CLI::CallForVersion& version) {
    print(one_line(version.what()) + "\n");
    return kDone;
  } catch (const CLI::ExtrasError& error) {
    return usage(program, unexpected(named(program), one_line(error.what())));
  } catch (const CLI::ParseError& error) {
    return usage(program, one_line(error.what()));
  } catch (const Failure& failure) {
    if (failure.code == kUsage) return usage(program, failure.message);
    note(failure.message, full_name(named(program)));
    return failure.code;
  }
}

}  // namespace
}  // namespace innkeeper::cli

int main(int argc, char** argv) {
  try {
    return innkeeper::cli::run(argc, argv);
  } catch (const innkeeper::cli::Failure& failure) {  // Thrown while printing the help.
    innkeeper::cli::note(failure.message);
    return failure.code;
  } catch (const std::exception& error) {
    innkeeper::cli::note(error.what());
    return innkeeper::cli::kInternal;
  }
}
