// innkeeper status: shows every GPU of the machine at one moment, with its lease holders, its processes, and
// its promised and foreign bytes.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <memory>

#include "cli/command.h"
#include "cli/gpus/need_gpus.h"
#include "cli/gpus/report.h"
#include "cli/gpus/survey.h"
#include "cli/screen.h"

namespace innkeeper::cli {
namespace {

using telemetry::Wanted;

struct Options {
  bool json = false, prometheus = false;
};

std::string status_text(const Survey& survey, const Screen& screen) {
  std::string text = heading(survey, driver_text(survey)) + "\n" + gpus_table(survey, screen).render(screen);
  for (const std::string& line : remarks(survey)) text += line + "\n";
  if (!survey.leases.empty()) text += "\n" + leases_table(survey, screen).render(screen);
  if (!survey.line.empty()) text += "\n" + line_table(survey, screen).render(screen);
  const Table users = users_table(survey, screen);
  if (!users.rows.empty()) text += "\n" + users.render(screen);
  if (!survey.residents.empty()) text += "\n" + residents_table(survey, screen).render(screen);
  return text;
}

int status(const Options& options) {
  if (options.json && options.prometheus) fail(kUsage, "--json and --prometheus exclude each other");
  const Survey survey = look_around(Wanted::memory | Wanted::utilization | Wanted::power |
                                    Wanted::temperature | Wanted::clocks | Wanted::processes);
  // The machine-readable formats always produce an answer, even without a GPU.
  if (options.json)
    print(to_json(survey) + "\n");
  else if (options.prometheus)
    print(to_prometheus(survey));
  else {
    if (survey.snapshot.lost.empty() && survey.residents.empty()) need_gpus(survey.snapshot);
    print(status_text(survey, screen()));
  }
  return kDone;
}

}  // namespace

void register_status(CLI::App& program) {
  CLI::App& command =
      *program.add_subcommand("status", "Show all GPUs: who holds them, who uses them, what is left");
  const auto options = std::make_shared<Options>();
  command.add_flag("--json", options->json, "As JSON, for programs");
  command.add_flag("--prometheus", options->prometheus, "As metrics, for Prometheus");
  on_run(command, [options] { return status(*options); });
}

}  // namespace innkeeper::cli
