#include "cli/command.h"

#include <unistd.h>

#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "cli/screen.h"

namespace innkeeper::cli {
namespace {

struct Job {
  std::vector<std::string> words;
  bool given = false;
};
Job& job() {
  static Job value;
  return value;
}
std::set<const CLI::App*>& job_takers() {
  static std::set<const CLI::App*> value;
  return value;
}
int& code() {
  static int value = kDone;
  return value;
}

}  // namespace

void fail(int exit_code, std::string message) { throw Failure{exit_code, std::move(message)}; }

namespace {

// Returns whether the request failed because the lease that INNKEEPER_LEASE names has ended. A script that
// falls back to the CPU after the exit status for "no GPU" must not do so after this.
bool is_about_a_lease(const Status& status) { return status.message().starts_with("the lease "); }

}  // namespace

void fail(const Status& status) {
  switch (status.code()) {
    case Code::invalid_argument: fail(kNever, status.message());
    case Code::busy: fail(kBusy, status.message());
    case Code::unavailable: fail(is_about_a_lease(status) ? kNoLease : kNoGpu, status.message());
    case Code::io_error: fail(kDirectory, status.message());
    default: fail(kInternal, status.message());
  }
}

void on_run(CLI::App& command, std::function<int()> body) {
  command.final_callback([body = std::move(body)] {
    if (job().given) fail(kUsage, "takes no command behind --");
    code() = body();
  });
}

void on_run_job(CLI::App& command, std::function<int(const std::vector<std::string>&)> body,
                std::function<bool()> without_dashes) {
  job_takers().insert(&command);
  if (without_dashes) command.prefix_command();
  command.final_callback([&command, body = std::move(body), without_dashes = std::move(without_dashes)] {
    std::vector<std::string> words = command.remaining();
    const bool loose = without_dashes && without_dashes();
    if (!words.empty() && !loose) throw CLI::ExtrasError(command.get_name(), words);
    if (!words.empty() && job().given) words.emplace_back("--");  // The "--" belongs to the job.
    words.insert(words.end(), job().words.begin(), job().words.end());
    if (words.empty() || words.front().empty())
      fail(kUsage, loose ? "needs a script, as in: " + full_name(command) + " --managed train.py"
                         : "needs a command behind --, as in: " + full_name(command) +
                               " --mem 8G -- python train.py");
    code() = body(words);
  });
}

bool takes_job(const CLI::App& command) { return job_takers().count(&command) == 1; }

void set_job(std::vector<std::string> words, bool given) { job() = {std::move(words), given}; }

int outcome() { return code(); }

void print(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(kOutput, std::string("cannot write the output: ") + std::strerror(errno));
    text.remove_prefix(static_cast<size_t>(written));
  }
}

void note(std::string_view text, std::string_view name) {
  const std::string line = std::string(name) + ": " + for_terminal(text) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

std::string joined(const std::vector<std::string>& words, std::string_view between) {
  std::string text;
  for (const std::string& word : words) text.append(text.empty() ? "" : between).append(word);
  return text;
}

std::string full_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent == nullptr ? command.get_name() : full_name(*parent) + " " + command.get_name();
}

}  // namespace innkeeper::cli
