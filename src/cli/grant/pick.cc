// innkeeper pick: prints GPUs to use now, for CUDA_VISIBLE_DEVICES. The choice respects all leases. It is a
// promise only with --hold, which leaves a lease behind for as long as a program needs to start.
#include <CLI/CLI.hpp>

#include <chrono>
#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/grant/grant.h"
#include "cli/grant/holder.h"
#include "cli/grant/request_options.h"

namespace innkeeper::cli {
namespace {

struct Options {
  RequestOptions request;
  std::string hold;
};

int pick(const Options& options) {
  lease::Request request = options.request.request();
  if (!options.hold.empty()) request.expires_after = duration(options.hold, "--hold");
  lease::Arbiter arbiter = open_arbiter();
  lease::Lease lease = grant(arbiter, std::move(request));
  // Printed first: a lease whose GPUs were not printed would only block other users.
  print(lease.uuids() + "\n");
  if (!options.hold.empty()) hold_in_background(arbiter, std::move(lease));
  return kDone;
}

}  // namespace

void register_pick(CLI::App& program) {
  CLI::App& command =
      *program.add_subcommand("pick", "Print the UUIDs of GPUs to use, for CUDA_VISIBLE_DEVICES");
  const auto options = std::make_shared<Options>();
  options->request.add_to(command);
  command
      .add_option("--hold", options->hold,
                  "Promise them: a lease that stays so long after this has ended (s, m, h, d)")
      ->type_name("TIME");
  command.footer(
      "As in: CUDA_VISIBLE_DEVICES=$(innkeeper pick --hold 1m) python train.py\n"
      "Without --hold nothing is promised: somebody else may be given the same GPUs.");
  on_run(command, [options] { return pick(*options); });
}

}  // namespace innkeeper::cli
