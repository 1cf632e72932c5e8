// innkeeper slurm submit: the request language of `queue add`, for a cluster.
//
// Outside a Slurm job it calls sbatch. Inside one it adds a job to the Slurm job's own queue, on the GPUs
// that Slurm granted. A script that submits its parts therefore runs alone and under Slurm.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "cli/command.h"
#include "cli/need_subcommand.h"
#include "cli/queue/common.h"
#include "cli/queue/job_options.h"
#include "cli/queue/sbatch.h"

namespace innkeeper::cli {
namespace {

struct SubmitOptions {
  JobOptions job;
  SbatchOptions sbatch;
  bool dry_run = false;
};

std::string printed(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + shell_quoted(word);
  return text + "\n";
}

// Runs the words with `input`, and returns their output.
std::string ask(std::vector<std::string> words, const std::string& input) {
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) fail(kInternal, std::strerror(errno));
  const pid_t child = fork();
  if (child < 0) fail(kInternal, std::string("cannot start sbatch: ") + std::strerror(errno));
  if (child == 0) {
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    _exit(errno == ENOENT ? kNotFound : kCannotRun);
  }
  close(in[0]);
  close(out[1]);
  std::signal(SIGPIPE, SIG_IGN);  // sbatch may refuse before it has read the script.
  for (std::string_view rest = input; !rest.empty();) {
    const ssize_t written = write(in[1], rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) break;
    rest.remove_prefix(static_cast<size_t>(written));
  }
  close(in[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t length = 0;
       (length = read(out[0], buffer, sizeof buffer)) > 0 || (length < 0 && errno == EINTR);)
    if (length > 0) text.append(buffer, static_cast<size_t>(length));
  close(out[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (code == kNotFound) fail(kNotFound, "there is no sbatch: slurm submit needs Slurm; queue add does not");
  if (code != 0) fail(code, "sbatch refused the job");  // sbatch has printed the reason.
  return text;
}

int submit(const SubmitOptions& options, const std::vector<std::string>& words) {
  if (std::getenv("SLURM_JOB_ID") != nullptr) {
    if (options.dry_run) fail(kUsage, "--dry-run shows a call of sbatch, and in a Slurm job there is none");
    return print_added(add_job(options.job, words), options.job);
  }
  queue::JobSpec spec = options.job.spec(words);
  if (options.job.memory_auto())
    fail(kUsage, "--mem auto knows what was measured on this machine, not on a cluster");
  SbatchOptions sbatch = options.sbatch;
  sbatch.variables = options.job.variables();
  const Result<Sbatch> call = to_sbatch(spec, options.job.after(), options.job.after_any(), sbatch);
  if (!call.ok()) fail(kUsage, call.status().message());
  for (const std::string& line : call.value().notes) note(line);
  if (options.dry_run) {
    print(printed(call.value().words) + call.value().script);
    return kDone;
  }
  // The answer is "123", or "123;cluster".
  const std::string answer = ask(call.value().words, call.value().script);
  const std::string number = answer.substr(0, answer.find_first_of(";\n"));
  if (number.empty()) fail(kInternal, "sbatch gave no job number");
  print(number + "\n");
  return kDone;
}

}  // namespace

void register_slurm(CLI::App& program) {
  CLI::App& command = *program.add_subcommand("slurm", "The same requests, for a Slurm cluster");
  need_subcommand(command);
  CLI::App& sub = *command.add_subcommand(
      "submit", "Submit a job by sbatch; prints its number: submit [OPTIONS] -- COMMAND");
  const auto options = std::make_shared<SubmitOptions>();
  options->job.add_to(sub);
  sub.add_option("--output", options->sbatch.output, "Where its output goes, as sbatch has it")
      ->type_name("FILE");
  sub.add_option("--sbatch", options->sbatch.more,
                 "An option for sbatch itself, as --sbatch=--partition=gpu; again "
                 "for more")
      ->type_name("OPTION");
  sub.add_option("--shard", options->sbatch.shard,
                 "What one of the cluster's GPU shards is, as 1G: then --mem asks "
                 "for shards (INNKEEPER_SLURM_SHARD)")
      ->type_name("SIZE")
      ->envname("INNKEEPER_SLURM_SHARD");
  sub.add_flag("--dry-run", options->dry_run, "Only show the call and the script");
  sub.footer(
      "-- COMMAND ARGUMENTS...\n"
      "Inside a Slurm job it is a job of this Slurm job's own queue, on the GPUs that Slurm gave; innkeeper "
      "queue\n"
      "shows it, and innkeeper queue wait waits for all of them.");
  on_run_job(sub, [options](const std::vector<std::string>& words) { return submit(*options, words); });
}

}  // namespace innkeeper::cli
