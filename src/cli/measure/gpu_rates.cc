#include "cli/measure/gpu_rates.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>

#include "base/printable.h"

namespace innkeeper::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Time to import PyTorch from a slow disk and to create contexts on many GPUs.
constexpr auto kPatience = std::chrono::minutes(5);
// Number of bytes of standard error that are kept for its last line.
constexpr size_t kMostKept = 4096;
constexpr int kCannotStart = 127;

std::string last_line(std::string_view text) {
  const size_t end = text.find_last_not_of(" \t\r\n");
  if (end == std::string_view::npos) return {};
  text = text.substr(0, end + 1);
  return printable(text.substr(text.rfind('\n') + 1), 400);
}

// Becomes the measuring Python. Only its standard error is a pipe. It dies with this program, so that no
// process measures a GPU whose lease is gone.
[[noreturn]] void become(const char* const* words, int error, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kCannotStart);
  const int nothing = open("/dev/null", O_RDWR);
  dup2(nothing, STDIN_FILENO);
  dup2(nothing, STDOUT_FILENO);
  dup2(error, STDERR_FILENO);
  execvp(words[0], const_cast<char* const*>(words));
  const char* const why = std::strerror(errno);
  [[maybe_unused]] const ssize_t told = write(STDERR_FILENO, why, std::strlen(why));
  _exit(kCannotStart);
}

// Appends the available bytes and keeps the end of the text. Returns false once all writers have
// closed the pipe.
bool read_some(int from, std::string& text) {
  std::array<char, 4096> part;
  const ssize_t count = read(from, part.data(), part.size());
  if (count < 0) return errno == EINTR || errno == EAGAIN;
  text.append(part.data(), static_cast<size_t>(count));
  if (text.size() > kMostKept) text.erase(0, text.size() - kMostKept);
  return count > 0;
}

// Waits for the child's end, but not for processes that it leaves behind with the pipe. Returns false
// after kPatience.
bool ended(int child, int pipe, std::string& text) {
  const Clock::time_point begun = Clock::now();
  std::array<pollfd, 2> ready = {pollfd{child, POLLIN, 0}, pollfd{pipe, POLLIN, 0}};
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(begun + kPatience - Clock::now());
    if (left.count() <= 0) return false;
    if (poll(ready.data(), ready.size(), static_cast<int>(left.count())) <= 0) continue;
    if (ready[1].revents != 0 && !read_some(pipe, text)) ready[1].fd = -1;
    if (ready[0].revents == 0) continue;
    // Reads the rest of the pipe; it holds 64 KiB, unless a daemon fills it meanwhile.
    for (int i = 0; i < 64 && ready[1].fd >= 0 && poll(&ready[1], 1, 0) > 0 && read_some(pipe, text); ++i) {
    }
    return true;
  }
}

}  // namespace

Status measure_gpu_rates(const std::string& python) {
  const auto failed = [&](const std::string& why) {
    return Status(Code::unavailable, printable(python, 400) + ": " + why);
  };
  // The variable is meant for the user's program; these GPUs are those of CUDA_VISIBLE_DEVICES.
  unsetenv("INNKEEPER_NODES");
  std::array<int, 2> pipe;
  if (pipe2(pipe.data(), O_CLOEXEC) != 0) return failed(std::strerror(errno));
  fcntl(pipe[0], F_SETFL, O_NONBLOCK);  // Only this end is non-blocking: the child's writes wait.
  const std::array<const char*, 4> words = {python.c_str(), "-m", "innkeeper.measure_gpus", nullptr};
  const pid_t self = getpid();
  const pid_t child = fork();
  if (child == 0) become(words.data(), pipe[1], self);
  close(pipe[1]);
  const int handle = child < 0 ? -1 : static_cast<int>(syscall(SYS_pidfd_open, child, 0));
  std::string text;
  const bool in_time = handle >= 0 && ended(handle, pipe[0], text);
  if (child > 0 && !in_time) kill(child, SIGKILL);
  if (handle >= 0) close(handle);
  close(pipe[0]);
  if (child < 0) return failed(std::strerror(errno));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (handle < 0) return failed("this kernel has no pidfd_open (Linux 5.3)");
  if (!in_time) return failed("it measured for more than five minutes");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return Status::okay();
  const std::string said = last_line(text);
  return failed(said.empty() ? "it failed and said nothing" : said);
}

}  // namespace innkeeper::cli
