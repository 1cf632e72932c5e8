// A queue of a test's own, with the runner that this build has (tests/queue_runner).
#pragma once

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "queue/queue.h"
#include "support/environment.h"
#include "support/soon.h"
#include "support/temporary_directory.h"

namespace innkeeper::test {

// The value of a result that the test cannot go on without; aborts on an error.
template <class T>
T good(Result<T> result) {
  IK_CHECK(result.ok(), result.status().message());
  return std::move(result).value();
}

inline queue::Program queue_runner() {
  auto directory = std::filesystem::canonical("/proc/self/exe").parent_path();
  for (; directory.has_relative_path(); directory = directory.parent_path()) {
    const auto file = directory / "tests" / "queue_runner" / "queue_runner";
    if (std::filesystem::exists(file)) return {{file.string()}};
  }
  std::fprintf(stderr, "the runner is not built: target queue_runner\n");
  std::abort();
}

inline std::string content(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline void spit(const std::filesystem::path& path, const std::string& text) { std::ofstream(path) << text; }

// Removed with everything in it, when its processes have gone. Leases are in a sibling directory.
class TemporaryQueueDirectory {
 public:
  TemporaryQueueDirectory() { environment_.set("INNKEEPER_LEASE_DIR", (outer() / "leases").string()); }
  ~TemporaryQueueDirectory() {
    queue::Queue rest = queue();
    (void)rest.pause_all();
    std::vector<queue::JobId> running;
    queue::Filter filter;
    filter.states = std::vector<queue::State>{queue::State::running};
    const std::vector<queue::JobLine> lines = rest.list(filter).value();
    for (const queue::JobLine& job : lines) running.push_back(job.id);
    if (!running.empty()) {
      (void)rest.resume(running);
      (void)rest.cancel(running);
    }
    for (int i = 0; i < 500 && rest.runner_alive(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    // A late process, or one that waits for a test that is over, would make the directory again: watchers and
    // supervisors start runners.
    // A process in the middle of exec() shows no words, so one look that finds none is not enough.
    for (int clean = 0; clean < 3;) {
      clean = kill_processes() > 0 ? 0 : clean + 1;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  TemporaryQueueDirectory(const TemporaryQueueDirectory&) = delete;
  TemporaryQueueDirectory& operator=(const TemporaryQueueDirectory&) = delete;

  std::filesystem::path path() const { return outer() / "queue"; }
  const std::filesystem::path& outer() const { return outer_.path(); }
  queue::Queue queue() const { return queue::Queue::open(path().string(), queue_runner()).value(); }

  // The runner's process; 0 if there is none.
  pid_t runner() const {
    const pid_t pid = std::atoi(content(path() / "runner.lock").c_str());
    const auto directory = queue::QueueDirectory::open(path().string());
    return directory.ok() && queue::runner_alive(*directory.value()) ? pid : 0;
  }
  bool kill_runner() const {
    const pid_t pid = runner();
    return pid > 0 && kill(pid, SIGKILL) == 0;
  }

 private:
  // Number of processes of `queue_runner DIRECTORY`, with their forks.
  int kill_processes() const {
    const std::string words = queue_runner().words.at(0) + '\0' + path().string() + '\0';
    int count = 0;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
      const pid_t pid = std::atoi(entry.path().filename().c_str());
      if (pid > 0 && content(entry.path() / "cmdline") == words && kill(pid, SIGKILL) == 0) ++count;
    }
    return count;
  }

  const TemporaryDirectory outer_{"queue-test"};
  Environment environment_;
};

// A job without GPUs that runs in a shell.
inline queue::JobSpec shell(const std::string& script) {
  queue::JobSpec spec;
  spec.command = {"/bin/sh", "-c", script};
  return spec;
}

}  // namespace innkeeper::test
