// innkeeper queue list | show | log.
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <chrono>
#include <iterator>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "cli/command.h"
#include "cli/gpus/survey.h"
#include "cli/queue/common.h"
#include "cli/screen.h"
#include "lease/process.h"

namespace innkeeper::cli {
namespace {

using nlohmann::json;
using queue::Job;
using queue::JobId;
using queue::JobLine;
using queue::State;

constexpr int64_t kShownEnded = 10;  // Number of ended jobs that are shown without --all.

std::string state_text(const JobLine& job) {
  std::string text = queue::to_string(job.state);
  if (job.held) text += ", paused";
  if (job.program_ended) text += ", program ended";
  if (job.state == State::queued && job.needs > 0) text += fmt::format(", after {}", job.needs);
  if (job.state == State::failed && job.attempt > 0) text += ", " + queue::ending_text(job.how, job.code);
  return text;
}

Colour colour_of(State state) {
  switch (state) {
    case State::running: return Colour::cyan;
    case State::done: return Colour::green;
    case State::failed:
    case State::interrupted: return Colour::red;
    case State::cancelled: return Colour::dim;
    default: return Colour::none;
  }
}

std::string time_text(const JobLine& job, int64_t now_ns) {
  if (job.state == State::queued) return age_text(now_ns - job.added_ns);
  if (job.started_ns == 0) return "";
  return age_text((job.state == State::running ? now_ns : job.ended_ns) - job.started_ns);
}

std::string clock_text(int64_t ns) {
  if (ns == 0) return "";
  const time_t seconds = static_cast<time_t>(ns / 1'000'000'000);
  tm parts{};
  localtime_r(&seconds, &parts);
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

// Invalid UTF-8 in a path or a word becomes U+FFFD.
std::string dump(const json& value) {
  return value.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

json line_json(const JobLine& job) {
  return {{"id", job.id},
          {"array", job.array},
          {"state", queue::to_string(job.state)},
          {"paused", job.held},
          {"how", queue::ended(job.state) && job.attempt > 0 ? json(queue::to_string(job.how)) : json()},
          {"code", queue::ended(job.state) && job.attempt > 0 ? json(job.code) : json()},
          {"priority", job.priority},
          {"gpus", job.gpus},
          {"memory", job.memory.count()},
          {"attempt", job.attempt},
          {"needs", job.needs},
          {"added", static_cast<double>(job.added_ns) / 1e9},
          {"started", static_cast<double>(job.started_ns) / 1e9},
          {"ended", static_cast<double>(job.ended_ns) / 1e9},
          {"title", job.title},
          {"program_ended", job.program_ended}};
}

// Writes the same text for lists of jobs: a json object per job would take longer than the rest of the work.
void append_line(std::string& text, const JobLine& job) {
  const bool over = queue::ended(job.state) && job.attempt > 0;
  const auto seconds = [](int64_t ns) { return static_cast<double>(ns) / 1e9; };
  fmt::format_to(
      std::back_inserter(text),
      R"({{"id":{},"array":{},"state":"{}","paused":{},"how":{},"code":{},"priority":{},"gpus":{},"memory":{},)"
      R"("attempt":{},"needs":{},"added":{},"started":{},"ended":{},"title":{},"program_ended":{}}})",
      job.id, job.array, queue::to_string(job.state), job.held,
      over ? fmt::format("\"{}\"", queue::to_string(job.how)) : "null",
      over ? std::to_string(job.code) : "null", job.priority, job.gpus, job.memory.count(), job.attempt,
      job.needs, seconds(job.added_ns), seconds(job.started_ns), seconds(job.ended_ns),
      json(job.title).dump(-1, ' ', false, json::error_handler_t::replace), job.program_ended);
}

constexpr int kMostAsked = 1'000'000'000;  // Largest number of jobs or attempts that an option accepts.

struct ListOptions {
  bool all = false, json = false;
  int64_t newest = 0;
};

int list(const ListOptions& options) {
  queue::Queue queue = open_queue();
  std::vector<JobLine> jobs;
  if (options.all || options.newest > 0) {
    queue::Filter filter;
    filter.newest = options.newest;
    jobs = value_of(queue.list(filter));
  } else {
    queue::Filter waiting;
    waiting.states = std::vector<State>{State::queued, State::running};
    jobs = value_of(queue.ended_last(kShownEnded));
    std::vector<JobLine> rest = value_of(queue.list(waiting));
    const auto middle = static_cast<std::ptrdiff_t>(jobs.size());
    jobs.insert(jobs.end(), std::move_iterator(rest.begin()), std::move_iterator(rest.end()));
    std::inplace_merge(jobs.begin(), jobs.begin() + middle, jobs.end(),
                       [](const JobLine& a, const JobLine& b) { return a.id < b.id; });
  }
  if (const std::string damage = value_of(queue.said_of_damage()); !damage.empty()) note(damage);
  const bool paused = value_of(queue.paused());
  if (options.json) {
    std::string text =
        fmt::format("{{\"paused\": {}, \"cpu_slots\": {}, \"jobs\": [", paused, value_of(queue.cpu_slots()));
    for (size_t i = 0; i < jobs.size(); ++i) {
      text += i == 0 ? "\n" : ",\n";
      append_line(text, jobs[i]);
    }
    print(text + "\n]}\n");
    return kDone;
  }
  const Screen out = screen();
  const int64_t now = wall_clock_ns();
  Table table;
  table.columns = {{"JOB", true, 0},    {"STATE", false, 0}, {"PRIORITY", true, 4}, {"GPUS", true, 3},
                   {"MEMORY", true, 3}, {"TIME", true, 2},   {"COMMAND", false, 0}};
  table.rows.reserve(jobs.size());
  for (JobLine& job : jobs) {
    std::vector<Cell>& row = table.rows.emplace_back(table.columns.size());
    row[0].text = std::to_string(job.id);
    row[1] = {state_text(job), colour_of(job.state)};
    row[2].text = std::to_string(job.priority);
    if (job.gpus > 0) {
      row[3].text = std::to_string(job.gpus);
      row[4].text = job.memory.count() == 0 ? "whole" : to_string(job.memory);
    }
    row[5].text = time_text(job, now);
    row[6].text = std::move(job.title);
  }
  if (paused) print("The queue is paused: nothing is started until `innkeeper queue resume`.\n");
  print(jobs.empty() ? "no jobs\n" : table.render(out));
  return kDone;
}

json job_json(queue::Queue& queue, const Job& job) {
  json value = line_json(job);
  json attempts = json::array();
  for (const queue::Attempt& attempt : job.attempts)
    attempts.push_back({{"attempt", attempt.number},
                        {"started", static_cast<double>(attempt.started_ns) / 1e9},
                        {"ended", static_cast<double>(attempt.ended_ns) / 1e9},
                        {"gpus", attempt.gpus},
                        {"how", queue::to_string(attempt.how)},
                        {"code", attempt.code},
                        {"peak_memory", attempt.peak_memory.count()},
                        {"peak_host", attempt.peak_host.count()},
                        {"output", value_of(queue.log_path(job.id, attempt.number))}});
  json after = json::array();
  for (const queue::Need& need : job.after) after.push_back({{"job", need.job}, {"any", need.any}});
  value["command"] = job.command;
  value["directory"] = job.directory;
  value["after"] = after;
  value["retries_left"] = job.retries_left;
  value["time_limit"] = job.time_limit ? json(static_cast<double>(job.time_limit->count()) / 1e3) : json();
  value["grace"] = static_cast<double>(job.grace.count()) / 1e3;
  value["linger"] = job.linger;
  value["left"] = json();
  if (job.left)
    value["left"] = {{"how", queue::to_string(job.left->how)},
                     {"code", job.left->code},
                     {"ending", job.left->ending},
                     {"processes", job.left->processes}};
  value["cpus"] = job.cpu_slots;
  value["notify"] = job.notify;
  value["reason"] = job.reason;
  value["attempts"] = attempts;
  return value;
}

std::string shell_words(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    const bool plain = !word.empty() && word.find_first_not_of(
                                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                            "0123456789_-./=:,+@%") == std::string::npos;
    if (!text.empty()) text += ' ';
    if (plain) {
      text += word;
      continue;
    }
    text += '\'';
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text += '\'';
  }
  return lease::printable(text);
}

// Returns text such as "its program has ended, exit 0; not yet: sleep (4711), python (4712), 3 more; they
// have been told to end".
std::string left_text(const queue::LeftBehind& left) {
  constexpr size_t kShown = 5;
  std::string text;
  for (size_t i = 0; i < std::min(left.processes.size(), kShown); ++i)
    text += (i == 0 ? "" : ", ") + left.processes[i];
  if (left.processes.size() > kShown) text += fmt::format(", {} more", left.processes.size() - kShown);
  return fmt::format("its program has ended, {}; not yet: {}{}", queue::ending_text(left.how, left.code),
                     text, left.ending ? "; told to end" : "");
}

int show(const std::vector<std::string>& words, bool as_json) {
  queue::Queue queue = open_queue();
  json all = json::array();
  for (const JobId id : resolve(queue, words)) {
    const Job job = value_of(queue.show(id));
    if (as_json) {
      all.push_back(job_json(queue, job));
      continue;
    }
    std::string text = fmt::format("job {}: {}\n", job.id, state_text(job));
    const auto field = [&text](const char* name, const std::string& value) {
      if (!value.empty()) text += fmt::format("  {:<10} {}\n", name, for_terminal(value));
    };
    field("command", shell_words(job.command));
    field("directory", lease::printable(job.directory));
    field("asks for", job.gpus == 0
                          ? fmt::format("{} CPU slot{}", job.cpu_slots, job.cpu_slots == 1 ? "" : "s")
                          : fmt::format("{} GPU{}, {}", job.gpus, job.gpus == 1 ? "" : "s",
                                        job.memory.count() == 0 ? "whole" : to_string(job.memory) + " each"));
    std::string after;
    for (const queue::Need& need : job.after)
      after +=
          fmt::format("{}{}{}", after.empty() ? "" : ", ", need.job, need.any ? " (however it ends)" : "");
    field("after", after);
    field("priority", job.priority == 0 ? "" : std::to_string(job.priority));
    field("retries", job.retries_left == 0 ? "" : std::to_string(job.retries_left) + " left");
    field("limit", job.time_limit ? age_text(std::chrono::nanoseconds(*job.time_limit).count()) : "");
    field("grace", job.grace == queue::kGrace ? "" : age_text(std::chrono::nanoseconds(job.grace).count()));
    field("lingers", job.linger ? "until what it leaves in the background has ended" : "");
    field("added", clock_text(job.added_ns));
    field("because", lease::printable(job.reason));
    if (job.left) field("left", left_text(*job.left));
    for (const queue::Attempt& attempt : job.attempts) {
      text += fmt::format("  attempt {}: {}, from {}{}\n", attempt.number,
                          attempt.ended_ns == 0 ? "running" : queue::ending_text(attempt.how, attempt.code),
                          clock_text(attempt.started_ns),
                          attempt.ended_ns == 0                ? ""
                          : attempt.how == queue::How::unknown ? ", last seen " + clock_text(attempt.ended_ns)
                                                               : " to " + clock_text(attempt.ended_ns));
      field("  on", attempt.gpus);
      field("  peak",
            (attempt.peak_memory.count() == 0 ? "" : to_string(attempt.peak_memory) + " of a GPU, ") +
                (attempt.peak_host.count() == 0 ? "" : to_string(attempt.peak_host) + " of the host"));
      field("  output", value_of(queue.log_path(job.id, attempt.number)));
    }
    print(text);
  }
  if (as_json) print(dump(all));
  return kDone;
}

// Prints the unread part of the file.
void copy_rest(int fd) {
  char buffer[65536];
  for (ssize_t length = 0; (length = read(fd, buffer, sizeof buffer)) > 0;)
    print(std::string_view(buffer, static_cast<size_t>(length)));
}

std::string no_output(const Job& job, int attempt) {
  const std::string see = fmt::format("; `innkeeper queue show {}` says more", job.id);
  if (attempt > job.attempt)
    return fmt::format("job {} has no attempt {}: it was begun {} time{}", job.id, attempt, job.attempt,
                       job.attempt == 1 ? "" : "s") +
           see;
  return fmt::format("job {} has no output: it is {}", job.id, queue::to_string(job.state)) + see;
}

int show_log(const std::string& word, int attempt, bool follow) {
  queue::Queue queue = open_queue();
  const std::vector<JobId> ids = resolve(queue, {word});
  if (ids.size() != 1)
    fail(kUsage,
         fmt::format("{} is {} jobs, and this prints the output of one: {}, say", word, ids.size(),
                     word.find('-') == std::string::npos ? word + ".0" : std::to_string(ids.front())));
  int fd = -1, of = 0;
  for (;;) {
    const Result<std::vector<JobLine>> over = queue.wait(ids, std::chrono::milliseconds(follow ? 200 : 0));
    if (!over.ok() && over.status().code() != Code::busy) fail_queue(over.status());
    const Job job = value_of(queue.show(ids[0]));
    const int wanted = attempt > 0 ? attempt : std::max(job.attempt, 1);
    if (fd >= 0 && of != wanted) {  // The job is in another attempt.
      copy_rest(fd);
      close(fd);
      fd = -1;
    }
    if (fd < 0) fd = open(value_of(queue.log_path(ids[0], of = wanted)).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd >= 0) copy_rest(fd);
    const bool last = queue::ended(job.state) || (attempt > 0 && job.attempt > attempt);
    if (!follow || last) {
      if (fd < 0) fail(kNoLease, no_output(job, attempt));
      close(fd);
      return kDone;
    }
  }
}

}  // namespace

void register_queue_show(CLI::App& command) {
  CLI::App& list_command =
      *command.add_subcommand("list", "Show the jobs that wait and run, and the last that ended");
  const auto options = std::make_shared<ListOptions>();
  list_command.add_flag("--all", options->all, "All there ever were");
  list_command.add_option("--last", options->newest, "The last so many")
      ->type_name("N")
      ->check(CLI::Range(1, kMostAsked));
  list_command.add_flag("--json", options->json, "As JSON, for programs");
  on_run(list_command, [options] { return list(*options); });

  CLI::App& show_command = *command.add_subcommand("show", "Show all that is known of jobs");
  const auto words = std::make_shared<std::vector<std::string>>();
  const auto as_json = std::make_shared<bool>(false);
  show_command.add_option("JOB", *words)->required();
  show_command.add_flag("--json", *as_json, "As JSON, for programs");
  on_run(show_command, [words, as_json] { return show(*words, *as_json); });

  CLI::App& log_command = *command.add_subcommand("log", "Print what a job has printed");
  const auto word = std::make_shared<std::string>();
  const auto attempt = std::make_shared<int>(0);
  const auto follow = std::make_shared<bool>(false);
  log_command.add_option("JOB", *word)->required();
  log_command.add_flag("-f,--follow", *follow, "And what it goes on to print, until it ends");
  log_command.add_option("--attempt", *attempt, "Of an earlier attempt")
      ->type_name("N")
      ->check(CLI::Range(1, kMostAsked));
  on_run(log_command, [word, attempt, follow] { return show_log(*word, *attempt, *follow); });
}

}  // namespace innkeeper::cli
