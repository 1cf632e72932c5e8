#include "cli/queue/job_options.h"

#include <CLI/CLI.hpp>

#include <filesystem>

#include "base/size.h"
#include "cli/command.h"
#include "cli/grant/holder.h"
#include "queue/environment.h"
#include "queue/sweep.h"

namespace innkeeper::cli {

void JobOptions::add_to(CLI::App& command) {
  command.add_option("-n,--gpus", gpus_, "How many GPUs, all or nothing (1); 0: CPU only")->type_name("N");
  command.add_option("--mem", memory_, "So much of each, as 20G; without it GPUs are taken whole")
      ->type_name("SIZE");
  command.add_option("--by", by_, "Best by free memory (free), its part (ratio), power or utilization")
      ->type_name("MODE");
  command.add_flag("--share", share_, "With others on the same GPU: the default with --mem");
  command.add_flag("--exclusive", exclusive_, "Each GPU for this job alone: the default without --mem");
  command.add_option("-c,--cpus", cpus_, "CPU slots of a job without GPUs (1)")->type_name("N");
  command.add_option("-p,--priority", priority_, "Higher goes first (0)")->type_name("N");
  command.add_option("--after", after_, "Only when these jobs have succeeded")
      ->type_name("JOB")
      ->delimiter(',');
  command.add_option("--after-any", after_any_, "Only when these jobs have ended, however")
      ->type_name("JOB")
      ->delimiter(',');
  command.add_option("--retry", retries_, "Run it again so often if it fails (0)")->type_name("N");
  command.add_option("--time", time_, "End it after so long, as 90m or 2h (s, m, h, d)")->type_name("TIME");
  command
      .add_option("--grace", grace_,
                  "Between SIGTERM and SIGKILL when it is cancelled, or its time is over (30s)")
      ->type_name("TIME");
  command.add_flag("--linger", linger_,
                   "Go on until what it leaves in the background has ended; that is ended with it else");
  command.add_option("--name", name_, "A name to be shown with it")->type_name("NAME");
  command
      .add_option("--array", array_,
                  "Many jobs, as 0-9 or 1,5,10-20:5: {index} in the command, "
                  "INNKEEPER_ARRAY_INDEX")
      ->type_name("INDICES");
  command
      .add_option("--sweep", sweep_,
                  "Many jobs, as lr=0.1,0.01: {lr} in the command, and the variable lr. "
                  "Again for each further axis")
      ->type_name("NAME=VALUES");
  command.add_option("--env", variables_, "Sets a variable for the job")->type_name("NAME=VALUE");
  command.add_option("-C,--directory", directory_, "Where it runs (here)")->type_name("DIRECTORY");
  command
      .add_option("--notify", notify_,
                  "A shell command to run when it has ended; sees INNKEEPER_JOB_ID, "
                  "_NAME, _STATE, _CODE, _OUTPUT")
      ->type_name("COMMAND");
}

queue::JobSpec JobOptions::spec(const std::vector<std::string>& words) const {
  queue::JobSpec spec;
  spec.command = words;
  spec.name = name_;
  spec.priority = priority_;
  spec.retries = retries_;
  spec.cpu_slots = cpus_;
  spec.notify = notify_;
  std::error_code error;
  spec.directory = std::filesystem::absolute(directory_.empty() ? "." : directory_, error).lexically_normal();
  if (error) fail(kUsage, "cannot find the directory " + directory_ + ": " + error.message());
  // A directory must have one name, because measurements of a command are stored by it.
  while (spec.directory.size() > 1 && spec.directory.back() == '/') spec.directory.pop_back();
  if (!time_.empty()) spec.time_limit = duration(time_, "--time");
  if (!grace_.empty()) spec.grace = duration(grace_, "--grace");
  spec.linger = linger_;
  if (without_gpus()) {
    if (memory_named() || share_ || exclusive_ || !by_.empty())
      fail(kUsage, "--gpus 0 asks for no GPU, so --mem, --share, --exclusive and --by mean nothing");
  } else {
    std::vector<std::string> request = {"--gpus=" + gpus_};
    if (memory_named() && !memory_auto()) request.push_back("--mem=" + memory_);
    if (!by_.empty()) request.push_back("--by=" + by_);
    // With --mem auto the size, and so the sharing, is decided later.
    if (share_ && !memory_auto()) request.emplace_back("--share");
    if (exclusive_) request.emplace_back("--exclusive");
    Result<lease::Request> parsed = lease::parse_request(request);
    if (!parsed.ok()) fail(kUsage, parsed.status().message());
    spec.gpus = std::move(parsed).value();
  }
  if (!array_.empty()) {
    Result<std::vector<int64_t>> indices = queue::parse_array(array_);
    if (!indices.ok()) fail(kUsage, indices.status().message());
    spec.indices = std::move(indices).value();
  }
  for (const std::string& text : sweep_) {
    Result<queue::Axis> axis = queue::parse_axis(text);
    if (!axis.ok()) fail(kUsage, axis.status().message());
    spec.sweep.push_back(std::move(axis).value());
  }
  spec.environment = queue::own_environment();
  for (const std::string& text : variables_) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      fail(kUsage, "--env is written as NAME=VALUE, not " + text);
    queue::set_variable(*spec.environment, text.substr(0, equals), text.substr(equals + 1));
  }
  return spec;
}

std::optional<Bytes> JobOptions::memory() const {
  const Result<Bytes> size = parse_size(memory_, SizeUnits::short_too);
  return size.ok() ? std::optional<Bytes>(size.value()) : std::nullopt;
}

}  // namespace innkeeper::cli
