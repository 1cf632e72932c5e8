#include "cli/queue/sbatch.h"

#include <algorithm>
#include <cctype>

#include "base/size.h"
#include "queue/sweep.h"

namespace innkeeper::cli {
namespace {

// Slurm's own limit on a script (SchedulerParameters' max_script_size).
constexpr size_t kScriptAtMost = size_t{4} << 20;
constexpr int kNiceEach = 100;

Status wrong(std::string message) { return Status(Code::invalid_argument, std::move(message)); }

bool is_slurm_job(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789_") == std::string::npos && text[0] != '_';
}

// Adds the options that request the GPUs.
Status gpus(const queue::JobSpec& spec, const std::string& shard, Sbatch& call) {
  if (!spec.gpus) {
    call.words.push_back("--cpus-per-task=" + std::to_string(spec.cpu_slots));
    return Status::okay();
  }
  const lease::Request& request = *spec.gpus;
  if (request.by != lease::By::free)
    call.notes.push_back("Slurm chooses the GPUs itself: --by means nothing there");
  if (request.whole() || shard.empty()) {
    if (!request.whole())
      call.notes.push_back(
          "without --shard a job takes its GPUs whole on Slurm, however little --mem asks for");
    call.words.push_back("--gres=gpu:" + std::to_string(request.count));
    return Status::okay();
  }
  if (request.count > 1)
    return wrong("Slurm gives shards of one GPU only: --gpus 1 with --mem, or GPUs whole");
  const Result<Bytes> size = parse_size(shard, SizeUnits::short_too);
  if (!size.ok() || size.value().count() == 0)
    return wrong("--shard is a size, as 1G" + (size.ok() ? "" : ": " + size.status().message()));
  const int64_t memory = request.memory.value_or(Bytes(1)).count();
  call.words.push_back("--gres=shard:" +
                       std::to_string((memory + size.value().count() - 1) / size.value().count()));
  return Status::okay();
}

// Returns a line for each "NAME=VALUE". Fails if a shell does not accept a name.
Result<std::string> exports(const std::vector<std::string>& variables, const std::string& indent) {
  std::string lines;
  for (const std::string& variable : variables) {
    const size_t equals = variable.find('=');
    const std::string name = variable.substr(0, equals);
    const bool good =
        std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
    if (!good || name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0)
      return wrong("the shell of a Slurm job cannot set a variable '" + name + "'");
    lines += indent + "export " + name + "=" + shell_quoted(variable.substr(equals + 1)) + "\n";
  }
  return lines;
}

// Returns the command with a loop that repeats it while retries are left.
std::string run_lines(const std::vector<std::string>& command, int retries, const std::string& indent) {
  std::string line;
  for (const std::string& word : command) line += (line.empty() ? "" : " ") + shell_quoted(word);
  if (retries == 0) return indent + "exec " + line + "\n";
  return indent + "tries=" + std::to_string(retries) + "\n" +       //
         indent + "until " + line + "; do\n" +                      //
         indent + "  status=$?\n" +                                 //
         indent + "  [ \"$tries\" -gt 0 ] || exit \"$status\"\n" +  //
         indent + "  tries=$((tries - 1))\n" +                      //
         indent + "done\n";
}

}  // namespace

std::string shell_quoted(const std::string& word) {
  const char* plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,+@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

Result<Sbatch> to_sbatch(const queue::JobSpec& spec, const std::vector<std::string>& after,
                         const std::vector<std::string>& after_any, const SbatchOptions& options) {
  if (!spec.notify.empty())
    return wrong("Slurm tells by itself: --sbatch=--mail-type=END in place of --notify");
  if (spec.linger) return wrong("Slurm ends what a job leaves behind: --linger means nothing there");
  Sbatch call;
  if (spec.grace != queue::kGrace)
    call.notes.emplace_back("on Slurm the cluster's KillWait is the grace: --grace means nothing there");
  call.words = {"sbatch", "--parsable", "--chdir=" + spec.directory};
  call.words.push_back("--job-name=" + (spec.name.empty() ? spec.command.front() : spec.name));
  IK_RETURN_IF_ERROR(gpus(spec, options.shard, call));
  if (spec.time_limit)
    call.words.push_back("--time=" + std::to_string((spec.time_limit->count() + 59'999) / 60'000));
  if (spec.time_limit && spec.retries > 0)
    call.notes.emplace_back("on Slurm --time is for all tries together, and its end is final");
  if (spec.priority < 0)
    call.words.push_back("--nice=" + std::to_string(int64_t{-kNiceEach} * spec.priority));
  if (spec.priority > 0) call.notes.emplace_back("only administrators may raise a job's priority on Slurm");
  std::string needs;
  for (const auto& [kind, jobs] : {std::pair("afterok", after), std::pair("afterany", after_any)})
    for (const std::string& job : jobs) {
      if (!is_slurm_job(job)) return wrong("a Slurm job is written as 12 or 12_3, not '" + job + "'");
      needs += (needs.empty() ? "" : ",") + std::string(kind) + ":" + job;
    }
  // Slurm then removes a job that can never start, as the queue does.
  if (!needs.empty()) {
    call.words.push_back("--dependency=" + needs);
    call.words.emplace_back("--kill-on-invalid-dep=yes");
  }
  if (!options.output.empty()) call.words.push_back("--output=" + options.output);

  const Result<std::vector<queue::Values>> tasks = queue::expand(spec.indices, spec.sweep);
  if (!tasks.ok()) return tasks.status();
  const Result<std::string> exported = exports(options.variables, "");
  if (!exported.ok()) return exported.status();
  call.script = "#!/bin/sh\n" + exported.value();
  if (spec.indices.empty() && spec.sweep.empty()) {
    call.script += run_lines(spec.command, spec.retries, "");
  } else {
    call.words.push_back("--array=0-" + std::to_string(tasks.value().size() - 1));
    call.script += "case \"$SLURM_ARRAY_TASK_ID\" in\n";
    for (size_t i = 0; i < tasks.value().size(); ++i) {
      call.script += std::to_string(i) + ")\n";
      const Result<std::string> values = exports(queue::variables(tasks.value()[i]), "  ");
      if (!values.ok()) return values.status();
      call.script += values.value();
      call.script +=
          run_lines(queue::substitute(spec.command, tasks.value()[i]), spec.retries, "  ") + "  ;;\n";
    }
    call.script += "esac\n";
  }
  if (call.script.size() > kScriptAtMost)
    return wrong("the script would be " + to_string(Bytes(static_cast<int64_t>(call.script.size()))) +
                 ", and Slurm takes 4 MiB: submit fewer jobs at once");
  call.words.insert(call.words.end(), options.more.begin(), options.more.end());
  return call;
}

}  // namespace innkeeper::cli
