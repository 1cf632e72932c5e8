// For a command that only has others below it. CLI11's own check (require_subcommand(1)) hides a word that is
// none of them.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/command.h"

namespace innkeeper::cli {

inline void need_subcommand(CLI::App& command) {
  command.require_subcommand(0, 1);
  command.final_callback([&command] {
    if (command.get_subcommands().empty()) fail(kUsage, "a subcommand is required");
  });
}

}  // namespace innkeeper::cli
