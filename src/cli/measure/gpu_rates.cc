#include "cli/measure/gpu_rates.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace innkeeper::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// To import PyTorch from a slow disk, and to make contexts on many GPUs.
constexpr auto kPatience = std::chrono::minutes(5);

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

// What arrives until the writer's end is closed; false if that took longer than kPatience.
bool read_all(int from, std::string& text) {
  const Clock::time_point begun = Clock::now();
  std::array<char, 4096> part;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(begun + kPatience - Clock::now());
    if (left.count() <= 0) return false;
    pollfd ready = {.fd = from, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, static_cast<int>(left.count())) <= 0) continue;
    const ssize_t count = read(from, part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    text.append(part.data(), static_cast<size_t>(count));
  }
}

}  // namespace

std::string python_beside() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path python = program.parent_path() / "python3";
  return !error && fs::exists(python, error) ? python.string() : "python3";
}

Status measure_gpu_rates(const std::string& python) {
  unsetenv("INNKEEPER_NODES");  // It is the program's own, and the GPUs are those of CUDA_VISIBLE_DEVICES.
  std::array<int, 2> pipe;
  if (pipe2(pipe.data(), O_CLOEXEC) != 0) return Status(Code::unavailable, std::strerror(errno));
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&files, pipe[1], STDERR_FILENO);
  const std::array<const char*, 4> words = {python.c_str(), "-m", "innkeeper.measure_gpus", nullptr};
  pid_t child = -1;
  const int error =
      posix_spawnp(&child, words[0], &files, nullptr, const_cast<char**>(words.data()), environ);
  posix_spawn_file_actions_destroy(&files);
  close(pipe[1]);
  std::string text;
  const bool ended = error != 0 || read_all(pipe[0], text);
  close(pipe[0]);
  if (error != 0) return Status(Code::unavailable, python + ": " + std::strerror(error));
  if (!ended) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!ended) return Status(Code::unavailable, python + " measured for more than five minutes");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return Status::okay();
  const std::string said = last_line(text);
  return Status(Code::unavailable, python + ": " + (said.empty() ? "it failed and said nothing" : said));
}

}  // namespace innkeeper::cli
