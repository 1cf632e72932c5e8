// innkeeper doctor: reports each known trouble with one line of cure.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <memory>

#include "cli/command.h"
#include "cli/doctor/checks.h"
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

}  // namespace

void register_doctor(CLI::App& program) {
  CLI::App& command = *program.add_subcommand("doctor", "Look for known trouble, each with one line of cure");
  const auto json = std::make_shared<bool>(false);
  command.add_flag("--json", *json, "As JSON, for programs");
  command.footer("Ends with 1 if there is trouble; hints are none.");
  on_run(command, [json] { return doctor(*json); });
}

}  // namespace innkeeper::cli
