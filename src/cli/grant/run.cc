// innkeeper run -- COMMAND: runs a command with a lease that lasts as long as the command's processes.
//
// The command runs below this program (src/keep), with the lease's descriptor open. Processes that it leaves
// behind keep the lease, even if they close the descriptor, because their memory may still be in use. To its
// user the command seems to have replaced this program. Without a lease it does replace it.
#include <CLI/CLI.hpp>

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/grant/grant.h"
#include "cli/grant/request_options.h"
#include "cli/grant/script_options.h"
#include "keep/attend.h"
#include "lease/here.h"
#include "telemetry/visible.h"

namespace innkeeper::cli {
namespace {

// Replaces the calling process by the command. Returns errno on failure.
int become(const std::vector<std::string>& job) {
  std::vector<char*> words;
  for (const std::string& word : job) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execvp(words.front(), words.data());
  return errno;
}

[[noreturn]] void fail_to_run(const std::vector<std::string>& job, int error) {
  fail(error == ENOENT ? kNotFound : kCannotRun, "cannot run " + job.front() + ": " + std::strerror(error));
}

// Sets the memory of managed devices in each process that shares a GPU, unless the user has set it.
void set_nodes(const lease::Request& request, int sharers) {
  if (!request.memory.has_value()) return;
  const char* said = std::getenv(lease::kNodesVariable);
  const std::string nodes = lease::nodes_for(
      *request.memory, sharers, said == nullptr ? std::nullopt : std::optional<std::string>(said));
  setenv(lease::kNodesVariable, nodes.c_str(), /*overwrite=*/1);
}

// If no GPU is visible, the error says how to run the script without one.
lease::Lease granted(lease::Arbiter& arbiter, const lease::Request& request, const ScriptOptions& script) {
  try {
    return grant(arbiter, request);
  } catch (Failure& failure) {
    if (failure.code == kNoGpu && !script.takes_gpus())
      failure.message += script.loose()
                             ? "; without a request the script runs without one"
                             : "; `innkeeper run --managed SCRIPT` runs a script made for CUDA without one";
    throw;
  }
}

[[noreturn]] void run(const lease::Request& request, const std::vector<std::string>& job,
                      const ScriptOptions& script) {
  lease::Arbiter arbiter = open_arbiter();
  lease::Lease lease = granted(arbiter, request, script);
  const Result<int> descriptor = lease.share_through_exec();
  if (!descriptor.ok()) fail(kInternal, descriptor.status().message());
  const telemetry::Snapshot gpus = telemetry::snapshot(telemetry::Wanted::nothing);
  telemetry::Variables variables = showing(by_vendor(lease.gpus(), gpus), telemetry::own_variables());
  variables.order = "PCI_BUS_ID";  // Needed by programs that compare numbers with nvidia-smi's.
  set_own_variables(variables);
  setenv(lease::kLeaseVariable, lease.id().c_str(), 1);
  setenv(lease::kLeasedVariable, lease.uuids().c_str(), 1);
  setenv(lease::kDescriptorVariable, std::to_string(descriptor.value()).c_str(), 1);
  const Result<int> error = keep::attend(arbiter, std::move(lease), "gpu-lease " + joined(job, " "),
                                         [&job] { return become(job); });
  if (!error.ok()) fail(kInternal, error.status().message());
  fail_to_run(job, error.value());
}

}  // namespace

void register_run(CLI::App& program) {
  CLI::App& command = *program.add_subcommand(
      "run", "Run a command that holds a lease for as long as it runs: run [OPTIONS] -- COMMAND");
  const auto options = std::make_shared<RequestOptions>();
  const auto script = std::make_shared<ScriptOptions>();
  options->add_to(command);
  script->add_to(command);
  command.footer(
      "-- COMMAND ARGUMENTS...\n"
      "The command sees the leased GPUs alone (CUDA_VISIBLE_DEVICES; of AMD's ROCR_ and "
      "HIP_VISIBLE_DEVICES).\n"
      "Signals and the exit status are the command's.\n"
      "What it leaves behind in the background keeps the lease.\n"
      "\n"
      "With --mem INNKEEPER_NODES is set, unless it is: what the managed device may have of each GPU.\n"
      "\n"
      "run --managed [OPTIONS] SCRIPT ARGUMENTS... (or -m MODULE, or -c CODE, as behind python)\n"
      "runs a script made for CUDA on the managed device.\n"
      "run --nproc N [OPTIONS] -- SCRIPT ARGUMENTS... (or -m MODULE)\n"
      "runs it in N processes, by torchrun, with a GPU for each, or as many as -n says for all.\n"
      "Where INNKEEPER_NODES names no GPU, or none can be seen, neither leases anything, unless a\n"
      "request is written.");
  on_run_job(
      command,
      [options, script](const std::vector<std::string>& job) -> int {
        script->check();
        lease::Request request = options->request();
        const std::vector<std::string> words = script->wanted() ? script->command(job) : job;
        if (script->wanted() && !options->given() && !script->takes_gpus()) fail_to_run(words, become(words));
        if (!options->count_given()) request.count = script->processes();
        set_nodes(request, script->sharers(request.count));
        run(request, words, *script);
      },
      [script] { return script->loose(); });
}

}  // namespace innkeeper::cli
