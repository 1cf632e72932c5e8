// innkeeper queue: the user's jobs on this machine. This file implements `add` and the hidden `runner`.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "base/lines.h"
#include "cli/command.h"
#include "cli/need_subcommand.h"
#include "cli/queue/common.h"
#include "cli/queue/job_options.h"
#include "queue/environment.h"
#include "queue/limits.h"
#include "queue/runner.h"
#include "telemetry/snapshot.h"

namespace innkeeper::cli {
namespace {

// Returns the path of this very program, which may not be on the PATH.
queue::Program this_program() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return {};
  return {{path.string(), "queue", "runner"}};
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Returns, inside a Slurm job, a directory that ends with it.
std::string slurm_directory() {
  const std::string job = variable("SLURM_JOB_ID");
  if (job.empty() || !variable(queue::kDirectoryVariable).empty()) return "";
  if (!std::all_of(job.begin(), job.end(), [](char c) { return c >= '0' && c <= '9'; })) return "";
  std::string parent = variable("SLURM_TMPDIR");
  if (parent.empty()) parent = variable("TMPDIR");
  if (parent.empty()) parent = "/tmp";
  return parent + "/innkeeper-" + std::to_string(geteuid()) + "-slurm-" + job;
}

// A job for GPUs waits while no GPU is seen, because a driver may come back. A job that requests more memory
// than any GPU has fails in its turn, unless a larger GPU exists by then.
void hint_at_gpus(const std::string& gpus, const std::optional<Bytes>& each) {
  const telemetry::Snapshot seen = telemetry::snapshot(telemetry::Wanted::memory);
  if (seen.gpus.empty()) {
    const std::string why = seen.driver.text();
    note("it waits: no GPU is seen here" + (why.empty() ? "" : " (" + why + ")") +
         "; `innkeeper doctor` says more, and --gpus 0 asks for none");
  }
  if (!seen.lost.empty()) return;  // No job fails while a GPU may come back.
  int count = 1;
  if (!seen.gpus.empty() && read_number(gpus, count) && count > static_cast<int>(seen.gpus.size()))
    note(fmt::format(
        "it asks for {} GPUs, and there are {} here: it fails when its turn comes, unless there are as "
        "many by then",
        count, seen.gpus.size()));
  Bytes largest;
  for (const telemetry::Gpu& gpu : seen.gpus)
    if (gpu.memory) largest = std::max(largest, gpu.memory->total);
  if (each && largest.count() > 0 && *each > largest)
    note("it asks for " + to_string(*each) + " of each GPU, and the largest here has " + to_string(largest) +
         ": it fails when its turn comes, unless there is a larger one by then");
}

}  // namespace

void fail_queue(const Status& status) {
  if (status.message().starts_with("there is no job")) fail(kNoLease, status.message());
  switch (status.code()) {
    case Code::invalid_argument: fail(kUsage, status.message());
    case Code::busy: fail(kBusy, status.message());
    case Code::damaged:
    case Code::io_error: fail(kDirectory, status.message());
    default: fail(kInternal, status.message());
  }
}

queue::Queue open_queue() {
  const std::string directory = slurm_directory();
  return value_of(directory.empty() ? queue::Queue::open(this_program())
                                    : queue::Queue::open(directory, this_program()));
}

std::vector<queue::JobId> resolve(queue::Queue& queue, const std::vector<std::string>& words) {
  std::vector<queue::JobId> ids;
  for (const std::string& word : words) {
    const Result<std::vector<queue::JobId>> found = queue.resolve(word);
    if (!found.ok()) fail_queue(found.status());
    for (const queue::JobId id : found.value())
      if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
  return ids;
}

queue::JobId add_job(const JobOptions& options, const std::vector<std::string>& words) {
  const std::string limits = queue::own_limits();
  queue::raise_limits();  // The job's limits do not apply to the queue's own files.
  queue::Queue queue = open_queue();
  queue::JobSpec spec = options.spec(words);
  spec.limits = limits;
  if (std::error_code error; !std::filesystem::is_directory(spec.directory, error))
    fail(kUsage, "--directory " + spec.directory + (error ? ": " + error.message() : " is no directory"));
  for (const queue::JobId id : resolve(queue, options.after())) spec.after.push_back({id, false});
  for (const queue::JobId id : resolve(queue, options.after_any())) spec.after.push_back({id, true});
  // Slurm may set SLURM_JOB_GPUS without CUDA_VISIBLE_DEVICES.
  if (const auto given = queue::variable_in(*spec.environment, "SLURM_JOB_GPUS");
      given && !queue::variable_in(*spec.environment, "CUDA_VISIBLE_DEVICES")) {
    queue::set_variable(*spec.environment, "CUDA_VISIBLE_DEVICES", *given);
    queue::set_variable(*spec.environment, "CUDA_DEVICE_ORDER", "PCI_BUS_ID");
  }
  if (spec.gpus && !spec.gpus->memory) {
    const std::optional<Bytes> known = value_of(queue.proposed_memory(spec));
    if (options.memory_auto() && !known)
      note("--mem auto: this command has not been measured here yet, so it takes its GPUs whole this time");
    if (options.memory_auto() && known) spec.gpus->memory = known;
    if (!options.memory_named() && known && !spec.gpus->exclusive)
      note("when this command ran before, --mem " + std::to_string((known->count() + (1 << 30) - 1) >> 30) +
           "G would have been enough: with it, or --mem auto, others can share the GPU");
  }
  return value_of(queue.add(std::move(spec))).front();
}

int print_added(queue::JobId id, const JobOptions& options) {
  try {
    print(std::to_string(id) + "\n");
  } catch (const Failure&) {
    note("job " + std::to_string(id) + " was added");  // A user that tried again would add the job twice.
    throw;
  }
  // Called after the number is printed: a driver may take seconds to answer.
  if (!options.without_gpus()) hint_at_gpus(options.gpus(), options.memory());
  return kDone;
}

void register_queue(CLI::App& program) {
  CLI::App& command = *program.add_subcommand("queue", "Jobs that start when their GPUs are free");
  need_subcommand(command);

  CLI::App& add =
      *command.add_subcommand("add", "Add a job; prints its number: queue add [OPTIONS] -- COMMAND");
  const auto options = std::make_shared<JobOptions>();
  options->add_to(add);
  add.footer(
      "-- COMMAND ARGUMENTS...\n"
      "It runs here with the environment of now. --mem auto asks for what it needed when it ran before.\n"
      "A job is named by its number; 12 is the whole array 12 as well, 12.0 its first job, 12-14 are three.");
  on_run_job(add, [options](const std::vector<std::string>& words) {
    return print_added(add_job(*options, words), *options);
  });
  register_queue_show(command);
  register_queue_control(command);

  CLI::App& runner = *command.add_subcommand("runner", "What starts the jobs; started by itself");
  runner.group("");  // The command is internal and hidden.
  const auto directory = std::make_shared<std::string>();
  runner.add_option("DIRECTORY", *directory)->required();
  on_run(runner, [directory] { return queue::run_runner(*directory, this_program()); });
}

}  // namespace innkeeper::cli
