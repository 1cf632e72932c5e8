#include "cli/grant/script_options.h"

#include <unistd.h>

#include <CLI/CLI.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "cli/command.h"
#include "config/text.h"
#include "lease/here.h"
#include "telemetry/snapshot.h"
#include "telemetry/visible.h"

namespace innkeeper::cli {
namespace {

constexpr int kMostProcesses = 1024;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

// Returns whether a virtual environment imports only its own packages and lacks innkeeper. A path file of a
// package, for example an editable one's, may lead elsewhere.
bool lacks_innkeeper(const std::filesystem::path& environment) {
  if (!variable("PYTHONPATH").empty()) return false;
  std::ifstream settings(environment / "pyvenv.cfg");
  bool is_alone = false;
  for (std::string line; std::getline(settings, line);)
    is_alone |= line.starts_with("include-system-site-packages") && line.ends_with("false");
  if (!is_alone) return false;
  bool found_directory = false;
  std::error_code error;
  for (const auto& python : std::filesystem::directory_iterator(environment / "lib", error)) {
    for (const auto& entry : std::filesystem::directory_iterator(python.path() / "site-packages", error)) {
      found_directory = true;
      const std::string name = entry.path().filename().string();
      const bool leads_elsewhere = name.ends_with(".pth") && name != "distutils-precedence.pth";
      if (leads_elsewhere || name.find("innkeeper") != std::string::npos) return false;
    }
  }
  return found_directory;
}

std::string python_here(bool runs_innkeeper) {
  if (const std::string active = variable("VIRTUAL_ENV"); !active.empty()) {
    if (runs_innkeeper && lacks_innkeeper(active))
      fail(kNotFound, "the active environment " + active +
                          " has no innkeeper: install it there, or name another Python by --python");
    return active + "/bin/python";
  }
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string beside = (program.parent_path() / "python").string();
  if (!error && access(beside.c_str(), X_OK) == 0) return beside;
  fail(kNotFound, "there is no Python beside " + program.string() +
                      ": activate the environment that has innkeeper, or name its Python by --python");
}

}  // namespace

void ScriptOptions::add_to(CLI::App& command) {
  command.add_flag("--managed", managed_, "Run a Python script made for CUDA on the managed device");
  nproc_option_ =
      command
          .add_option("--nproc", nproc_,
                      "Run a Python script in so many processes, by torchrun; leases a GPU for each")
          ->type_name("N")
          ->check(CLI::Range(1, kMostProcesses));
  command
      .add_option("--python", python_,
                  "The Python for --managed and --nproc ($VIRTUAL_ENV's, else the one beside innkeeper)")
      ->type_name("FILE");
}

void ScriptOptions::check() const {
  if (!python_.empty() && !wanted()) fail(kUsage, "--python is for --managed and --nproc");
}

bool ScriptOptions::nproc_given() const { return nproc_option_->count() > 0; }

// Accepts "python", "python3.12", or a path that ends so, but not a script whose name begins so.
bool ScriptOptions::is_interpreter(const std::string& word) {
  constexpr std::string_view kPython = "python";
  const std::string named = std::filesystem::path(word).filename().string();
  if (!named.starts_with(kPython)) return false;
  const bool is_plain = named.find_first_not_of("0123456789.", kPython.size()) == std::string::npos;
  return is_plain || !std::filesystem::is_regular_file(word);
}

std::vector<std::string> ScriptOptions::command(const std::vector<std::string>& script) const {
  const std::string named = std::filesystem::path(script.front()).filename().string();
  if (nproc_given() && (named.starts_with("python") || named == "torchrun"))
    fail(kUsage, "--nproc runs a script by torchrun: leave " + in_quotes(script.front()) +
                     " out, as in: innkeeper run --nproc " + std::to_string(nproc_) + " -- train.py");
  if (managed_ && is_interpreter(script.front()))
    fail(kUsage, "--managed runs a script by its own Python: leave " + in_quotes(script.front()) +
                     " out, as in: innkeeper run --managed train.py");
  std::vector<std::string> words = {python_.empty() ? python_here(managed_) : python_};
  if (managed_) words.insert(words.end(), {"-m", "innkeeper"});
  if (nproc_given())
    words.insert(words.end(),
                 {"-m", "torch.distributed.run", "--standalone", "--nproc-per-node", std::to_string(nproc_)});
  words.insert(words.end(), script.begin(), script.end());
  return words;
}

bool ScriptOptions::takes_gpus() const {
  const std::string nodes = variable(lease::kNodesVariable);
  const bool named =
      nodes.empty() || nodes.find("auto") != std::string::npos || nodes.find("cuda") != std::string::npos;
  if (!named) return false;
  const telemetry::Snapshot gpus = telemetry::snapshot(telemetry::Wanted::nothing);
  const telemetry::Visible visible = telemetry::visible_from_environment(gpus);
  const bool hidden = visible.restricted && visible.uuids.empty() && visible.note.empty();
  return !gpus.gpus.empty() && !hidden;
}

int ScriptOptions::sharers(int gpus) const { return (nproc_ + gpus - 1) / gpus; }

}  // namespace innkeeper::cli
