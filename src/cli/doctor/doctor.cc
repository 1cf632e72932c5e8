// innkeeper doctor: reports each known trouble with one line of cure.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/doctor/checks.h"
#include "cli/python_beside.h"
#include "cli/screen.h"

namespace innkeeper::cli {
namespace {

constexpr int kLockLimitMs = 2000;

const char* to_string(Grade grade) {
  switch (grade) {
    case Grade::good: return "good";
    case Grade::hint: return "hint";
    case Grade::trouble: return "trouble";
  }
  return "?";
}

Colour colour(Grade grade) {
  if (grade == Grade::good) return Colour::green;
  return grade == Grade::hint ? Colour::yellow : Colour::red;
}

std::string as_text(const std::vector<Finding>& findings, const Screen& screen) {
  std::string text;
  for (const Finding& finding : findings) {
    text += paint(screen, colour(finding.grade), fmt::format("{:8}", to_string(finding.grade))) +
            fmt::format("{:18}{}\n", finding.name, for_terminal(finding.what));
    if (!finding.cure.empty())
      text +=
          fmt::format("{:26}{}\n", "", paint(screen, Colour::bold, "cure: ") + for_terminal(finding.cure));
  }
  return text;
}

std::string as_json(const std::vector<Finding>& findings) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  for (const Finding& finding : findings)
    list.push_back({{"grade", to_string(finding.grade)},
                    {"name", finding.name},
                    {"what", finding.what},
                    {"cure", finding.cure.empty() ? Json(nullptr) : Json(finding.cure)}});
  return Json({{"schema", 1}, {"findings", list}}).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

int doctor(bool json) {
  const std::vector<Finding> findings = check(examine(kLockLimitMs));
  print(json ? as_json(findings) : as_text(findings, screen()));
  const bool trouble = std::any_of(findings.begin(), findings.end(),
                                   [](const Finding& finding) { return finding.grade == Grade::trouble; });
  return trouble ? kTrouble : kDone;
}

struct Options {
  bool json = false, patches = false;
  std::string python = python_beside();
};

// Becomes the Python that has the package, since the table of patches is the package's.
[[noreturn]] void list_patches(const Options& options) {
  const std::array<const char*, 5> words = {options.python.c_str(), "-m", "innkeeper.torch_patches",
                                            options.json ? "--json" : nullptr, nullptr};
  execvp(words[0], const_cast<char* const*>(words.data()));
  fail(kUsage, options.python + ": " + std::strerror(errno) + ": name the Python of innkeeper by --python");
}

}  // namespace

void register_doctor(CLI::App& program) {
  CLI::App& command = *program.add_subcommand("doctor", "Look for known trouble, each with one line of cure");
  const auto options = std::make_shared<Options>();
  command.add_flag("--json", options->json, "As JSON, for programs");
  CLI::Option* const patches = command.add_flag(
      "--patches", options->patches, "List what import innkeeper changes in PyTorch and in libraries");
  command
      .add_option("--python", options->python,
                  "Whose innkeeper lists its patches (the one beside this program)")
      ->type_name("PYTHON")
      ->needs(patches);
  command.footer("Ends with 1 if there is trouble; hints are none.");
  on_run(command, [options] {
    if (options->patches) list_patches(*options);
    return doctor(options->json);
  });
}

}  // namespace innkeeper::cli
