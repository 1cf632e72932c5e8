#include "cli/python_beside.h"

#include <filesystem>
#include <system_error>

namespace innkeeper::cli {

namespace fs = std::filesystem;

std::string python_beside() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path python = program.parent_path() / "python3";
  return !error && fs::exists(python, error) ? python.string() : "python3";
}

}  // namespace innkeeper::cli
