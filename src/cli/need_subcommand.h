// For a command that consists of sub-commands. CLI11's own check (require_subcommand(1)) hides a word that
// names none of them.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

#include "cli/command.h"

namespace innkeeper::cli {

// Returns false for an internal command, whose group is empty: neither help nor completion nor an
// error offers it.
inline bool is_for_people(const CLI::App* command) { return !command->get_group().empty(); }

// Returns the names of the sub-commands, for example "list, hold, release".
inline std::string below(const CLI::App& command) {
  std::string names;
  for (const CLI::App* sub : command.get_subcommands(is_for_people))
    names += (names.empty() ? "" : ", ") + sub->get_name();
  return names;
}

inline void need_subcommand(CLI::App& command) {
  command.require_subcommand(0, 1);
  command.final_callback([&command] {
    if (command.get_subcommands().empty()) fail(kUsage, "a subcommand is required: " + below(command));
  });
}

}  // namespace innkeeper::cli
