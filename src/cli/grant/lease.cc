// innkeeper lease list | hold | release.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cli/command.h"
#include "cli/gpus/report.h"
#include "cli/gpus/survey.h"
#include "cli/grant/grant.h"
#include "cli/grant/holder.h"
#include "cli/grant/request_options.h"
#include "cli/need_subcommand.h"
#include "cli/screen.h"
#include "lease/process.h"

namespace innkeeper::cli {
namespace {

int list(bool json) {
  const Survey survey = look_around(telemetry::Wanted::memory | telemetry::Wanted::processes);
  if (!survey.directory.ok()) fail(survey.directory);
  if (json) {
    print(leases_json(survey) + "\n");
    return kDone;
  }
  const Screen out = screen();
  if (survey.leases.empty() && survey.line.empty()) print("no leases in " + survey.directory_path + "\n");
  if (!survey.leases.empty()) print(leases_table(survey, out).render(out));
  if (!survey.line.empty()) print((survey.leases.empty() ? "" : "\n") + line_table(survey, out).render(out));
  return kDone;
}

struct HoldOptions {
  RequestOptions request;
  std::string time, job;
  bool background = false;
};

int hold(const HoldOptions& options) {
  lease::Request request = options.request.request();
  if (!options.time.empty()) request.expires_after = duration(options.time, "--for");
  if (options.background && options.time.empty())
    fail(kUsage, "--background needs --for: nobody else would end the lease");
  request.job = options.job;
  lease::Arbiter arbiter = open_arbiter();
  lease::Lease lease = grant(arbiter, std::move(request));
  if (!options.background) catch_signals();
  print(lease.id() + " " + lease.uuids() + "\n");  // If print() fails, the lease ends.
  if (options.background) {
    hold_in_background(arbiter, std::move(lease));
    return kDone;
  }
  const int64_t expires_ns = lease.expires_ns();
  const int signal = hold_here(std::move(lease), arbiter);
  if (signal != 0) {  // The program ends as the signal would have ended it.
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  if (expires_ns == 0 || machine_clock_ns() < expires_ns)
    fail(kNoLease, "the lease was released by somebody else");
  return kDone;
}

[[noreturn]] void fail_release(const Status& status) {
  switch (status.code()) {
    case Code::invalid_argument: fail(kUsage, status.message());
    case Code::unavailable: fail(kNoLease, status.message());
    case Code::busy: fail(kNotYours, status.message());
    default: fail(status);
  }
}

// Releases all leases, or none if one cannot be released. A lease that ends by itself meanwhile
// counts as released.
int release(const std::vector<std::string>& ids) {
  lease::Arbiter arbiter = open_arbiter();
  for (const std::string& id : ids)
    if (const Status may = arbiter.may_revoke(id); !may.ok()) fail_release(may);
  for (const std::string& id : ids)
    if (const Status done = arbiter.revoke(id); !done.ok() && done.code() != Code::unavailable)
      fail_release(done);
  return kDone;
}

}  // namespace

void register_lease(CLI::App& program) {
  CLI::App& command = *program.add_subcommand("lease", "List, hold and release leases");
  need_subcommand(command);

  CLI::App& list_command = *command.add_subcommand("list", "Show all leases of this machine, and who waits");
  const auto json = std::make_shared<bool>(false);
  list_command.add_flag("--json", *json, "As JSON, for programs");
  on_run(list_command, [json] { return list(*json); });

  CLI::App& hold_command =
      *command.add_subcommand("hold", "Hold a lease until interrupted; prints its id and the GPUs' UUIDs");
  const auto options = std::make_shared<HoldOptions>();
  options->request.add_to(hold_command);
  hold_command.add_option("--for", options->time, "End it after so long (s, m, h, d)")->type_name("TIME");
  hold_command.add_flag("--background", options->background, "Return at once; needs --for");
  hold_command.add_option("--name", options->job, "A name to be shown with it")->type_name("NAME");
  on_run(hold_command, [options] { return hold(*options); });

  CLI::App& release_command =
      *command.add_subcommand("release", "End leases of yours, whoever in your name holds them");
  const auto ids = std::make_shared<std::vector<std::string>>();
  release_command.add_option("ID", *ids, "The leases, by the first column of: innkeeper lease list")
      ->required();
  release_command.footer("A program that goes on using the GPU is not stopped by it.");
  on_run(release_command, [ids] { return release(*ids); });
}

}  // namespace innkeeper::cli
