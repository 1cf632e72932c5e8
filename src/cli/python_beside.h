// The Python that subcommands start.
#pragma once

#include <string>

namespace innkeeper::cli {

// The Python beside this program, as a virtual environment has it, else python3, which PATH finds.
std::string python_beside();

}  // namespace innkeeper::cli
