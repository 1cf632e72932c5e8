#include "cli/managed_options.h"

#include <unistd.h>

#include <CLI/CLI.hpp>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "cli/command.h"
#include "telemetry/snapshot.h"

namespace innkeeper::cli {
namespace {

constexpr const char* kNodes = "INNKEEPER_NODES";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

std::string python_here() {
  if (const std::string active = variable("VIRTUAL_ENV"); !active.empty()) return active + "/bin/python";
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string beside = (program.parent_path() / "python").string();
  if (!error && access(beside.c_str(), X_OK) == 0) return beside;
  fail(kNotFound, "there is no Python beside " + program.string() +
                      ": activate the environment that has innkeeper, or name its Python by --python");
}

}  // namespace

void ManagedOptions::add_to(CLI::App& command) {
  command.add_flag("--managed", managed_, "Run a Python script made for CUDA on the managed device");
  command
      .add_option("--python", python_,
                  "The Python for --managed ($VIRTUAL_ENV's, else the one beside innkeeper)")
      ->type_name("FILE");
}

void ManagedOptions::check() const {
  if (!python_.empty() && !managed_) fail(kUsage, "--python is for --managed");
}

std::vector<std::string> ManagedOptions::command(const std::vector<std::string>& script) const {
  std::vector<std::string> words = {python_.empty() ? python_here() : python_, "-m", "innkeeper"};
  words.insert(words.end(), script.begin(), script.end());
  return words;
}

bool ManagedOptions::takes_gpus() const {
  const std::string nodes = variable(kNodes);
  const bool named =
      nodes.empty() || nodes.find("auto") != std::string::npos || nodes.find("cuda") != std::string::npos;
  return named && !telemetry::snapshot(telemetry::Wanted::nothing).cards.empty();
}

void ManagedOptions::set_nodes(const lease::Request& request) const {
  if (request.memory.has_value())
    setenv(kNodes, ("cuda:" + std::to_string(request.memory->count()) + "B").c_str(), /*overwrite=*/0);
}

}  // namespace innkeeper::cli
