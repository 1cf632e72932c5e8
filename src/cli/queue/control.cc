// innkeeper queue wait | cancel | pause | resume | drain | slots | prune.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/lines.h"
#include "cli/command.h"
#include "cli/gpus/survey.h"
#include "cli/grant/holder.h"
#include "cli/queue/common.h"

namespace innkeeper::cli {
namespace {

using Words = std::vector<std::string>;

std::optional<std::chrono::milliseconds> limit_of(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return duration(text, "--timeout");
}

// Returns the job in which this process runs; 0: none.
queue::JobId own_job() {
  queue::JobId own = 0;
  const char* const text = std::getenv("INNKEEPER_JOB_ID");
  return text != nullptr && read_number(text, own) ? own : 0;
}

// Waits for the named jobs, or for all that have not ended. A job that waited for itself would wait for ever.
int wait(const Words& words, const std::string& limit) {
  queue::Queue queue = open_queue();
  std::vector<queue::JobId> ids = resolve(queue, words);
  const queue::JobId own = own_job();
  if (words.empty()) {
    queue::Filter filter;
    filter.states = std::vector<queue::State>{queue::State::queued, queue::State::running};
    const std::vector<queue::JobLine> lines = value_of(queue.list(filter));
    for (const queue::JobLine& line : lines)
      if (line.id != own) ids.push_back(line.id);
  } else if (std::find(ids.begin(), ids.end(), own) != ids.end()) {
    fail(kUsage, fmt::format("job {} is the one in which this runs: it cannot wait for its own end", own));
  }
  int failed = 0;
  const std::vector<queue::JobLine> lines = value_of(queue.wait(ids, limit_of(limit)));
  for (const queue::JobLine& line : lines) {
    if (line.state == queue::State::done) continue;
    ++failed;
    note(fmt::format("job {} is {}", line.id, to_string(line.state)) +
         (queue.show(line.id).ok() ? fmt::format("; `innkeeper queue show {}` says more", line.id)
                                   : ""));  // The job was pruned.
  }
  return failed == 0 ? kDone : kTrouble;
}

int pause(const Words& words) {
  queue::Queue queue = open_queue();
  need(words.empty() ? queue.pause_all() : queue.pause(resolve(queue, words)));
  return kDone;
}

int resume(const Words& words) {
  queue::Queue queue = open_queue();
  need(words.empty() ? queue.resume_all() : queue.resume(resolve(queue, words)));
  return kDone;
}

int64_t count_of(const std::string& text, const char* option) {
  int64_t value = 0;
  if (!read_number(text, value))
    fail(kUsage, std::string(option) + " is a number of jobs, or all, not '" + text + "'");
  return value;
}

struct PruneOptions {
  std::string older, keep;
  bool automatic = false;
};

int prune(const PruneOptions& options) {
  queue::Queue queue = open_queue();
  queue::Keep keep;
  const bool named = !options.older.empty() || !options.keep.empty();
  if (options.automatic || !named) keep = value_of(queue.keep());
  if (options.older == "never")
    keep.age = std::nullopt;
  else if (!options.older.empty())
    keep.age = duration(options.older, "--older");
  if (options.keep == "all")
    keep.jobs = std::nullopt;
  else if (!options.keep.empty())
    keep.jobs = count_of(options.keep, "--keep");
  if (options.automatic) {
    if (named) need(queue.set_keep(keep));
    print(fmt::format("kept by itself: {}, {}\n",
                      keep.jobs ? fmt::format("the last {} jobs that ended", *keep.jobs) : "all jobs",
                      keep.age ? "for " + age_text(keep.age->count()) : "for ever"));
    return kDone;
  }
  const queue::Pruned gone = value_of(queue.prune(keep));
  print(fmt::format("pruned {} job{} and {} of output\n", gone.jobs, gone.jobs == 1 ? "" : "s",
                    to_string(gone.output)));
  return kDone;
}

}  // namespace

void register_queue_control(CLI::App& command) {
  const auto with_jobs = [&command](const char* name, const char* description, bool required,
                                    int (*body)(const Words&)) {
    CLI::App& sub = *command.add_subcommand(name, description);
    const auto words = std::make_shared<Words>();
    CLI::Option* const option = sub.add_option("JOB", *words);
    if (required) option->required();
    on_run(sub, [words, body] { return body(*words); });
  };

  CLI::App& wait_command =
      *command.add_subcommand("wait", "Wait until jobs have ended: those named, or all there are now");
  const auto words = std::make_shared<Words>();
  const auto limit = std::make_shared<std::string>();
  wait_command.add_option("JOB", *words);
  wait_command.add_option("--timeout", *limit, "At most so long (s, m, h, d)")->type_name("TIME");
  wait_command.footer("Ends with 1 if one of them did not succeed.");
  on_run(wait_command, [words, limit] { return wait(*words, *limit); });

  with_jobs("cancel", "End jobs that run, and drop those that wait", true, [](const Words& jobs) {
    queue::Queue queue = open_queue();
    const std::vector<queue::JobId> ids = resolve(queue, jobs);
    if (ids.size() == 1) {  // Of several jobs, those that have ended are silently left as they are.
      const queue::Job job = value_of(queue.show(ids.front()));
      if (ended(job.state))
        note("job " + std::to_string(job.id) + " has ended: it is " + to_string(job.state));
    }
    need(queue.cancel(ids));
    return int{kDone};
  });
  with_jobs("pause", "Stop jobs until resume; without a job: start nothing any more", false, pause);
  with_jobs("resume", "Let jobs, or the queue, go on", false, resume);

  CLI::App& drain_command = *command.add_subcommand(
      "drain", "Start nothing any more, and wait until nothing runs: before a shutdown");
  const auto drain_limit = std::make_shared<std::string>();
  drain_command.add_option("--timeout", *drain_limit, "Wait at most so long (s, m, h, d)")->type_name("TIME");
  on_run(drain_command, [drain_limit] {
    queue::Queue queue = open_queue();
    need(queue.drain(limit_of(*drain_limit)));
    return int{kDone};
  });

  CLI::App& prune_command =
      *command.add_subcommand("prune", "Forget jobs that ended long ago, with their output");
  const auto pruning = std::make_shared<PruneOptions>();
  prune_command.add_option("--older", pruning->older, "Those that ended so long ago (s, m, h, d), or never")
      ->type_name("TIME");
  prune_command.add_option("--keep", pruning->keep, "All but the last N that ended; or all")->type_name("N");
  prune_command.add_flag("--auto", pruning->automatic,
                         "Set, or show, what is pruned by itself whenever the last job has ended");
  prune_command.footer(
      "Without options: what is pruned by itself too. Jobs that wait or run stay, and whole arrays of which\n"
      "anything stays, and output that somebody has open. How pruned jobs ended stays known: --after takes "
      "them.");
  on_run(prune_command, [pruning] { return prune(*pruning); });

  CLI::App& slots_command = *command.add_subcommand(
      "slots", "Show or set how many CPU slots there are for jobs without GPUs (as many as CPUs)");
  const auto slots = std::make_shared<int64_t>(0);
  slots_command.add_option("N", *slots)->check(CLI::Range(int64_t{1}, queue::kMostCpuSlots));
  on_run(slots_command, [slots] {
    queue::Queue queue = open_queue();
    if (*slots != 0) need(queue.set_cpu_slots(*slots));
    print(std::to_string(value_of(queue.cpu_slots())) + "\n");
    return int{kDone};
  });
}

}  // namespace innkeeper::cli
