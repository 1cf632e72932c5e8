// innkeeper top: a refreshing status on the full screen, with plots of memory and utilization over time. It
// uses escape sequences that every present terminal knows. Querying the list of processes is slow, so it is
// queried less often.
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <chrono>
#include <csignal>
#include <memory>

#include "cli/command.h"
#include "cli/gpus/survey.h"
#include "cli/gpus/top_frame.h"
#include "cli/screen.h"

namespace innkeeper::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kProcessesEvery{3};

volatile std::sig_atomic_t stop_signal = 0, pause_signal = 0;

// Signals are unblocked only while waiting for keys, so none is missed between checking its flag and waiting.
class Signals {
 public:
  Signals() {
    sigset_t ours;
    sigemptyset(&ours);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGWINCH}) {
      sigaddset(&ours, signal);
      struct sigaction action {};
      action.sa_handler = [](int number) {
        if (number == SIGTSTP)
          pause_signal = number;
        else if (number != SIGWINCH)  // SIGWINCH only has to end the waiting.
          stop_signal = number;
      };
      sigaction(signal, &action, nullptr);
    }
    sigprocmask(SIG_BLOCK, &ours, &before_);
  }
  ~Signals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  const sigset_t& outside() const { return before_; }

 private:
  sigset_t before_ = {};
};

// Restores the terminal however the program ends, except by SIGKILL.
class FullScreen {
 public:
  FullScreen() {
    tcgetattr(STDIN_FILENO, &before_);
    enter();
  }
  ~FullScreen() { leave(); }
  FullScreen(const FullScreen&) = delete;
  FullScreen& operator=(const FullScreen&) = delete;

  void enter() {
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw);
    print("\033[?1049h\033[?25l");
  }
  void leave() {
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
    constexpr std::string_view kBack = "\033[?25h\033[?1049l";
    if (write(STDOUT_FILENO, kBack.data(), kBack.size()) < 0) return;  // The terminal is gone.
  }
  // Overwrites the screen without clearing it first, so it does not flicker.
  static void show(const std::string& text) {
    std::string out = "\033[H";
    size_t begin = 0;
    for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
      if (begin > 0) out += "\r\n";
      out += text.substr(begin, end - begin) + "\033[K";
      begin = end + 1;
    }
    print(out + "\033[J");
  }

 private:
  termios before_ = {};
};

// Returns the available keys; an escape sequence counts as one key.
std::vector<std::string> read_keys(bool& ended) {
  char buffer[64];
  const ssize_t length = read(STDIN_FILENO, buffer, sizeof buffer);
  ended = length <= 0;
  std::vector<std::string> keys;
  const std::string_view text(buffer, length > 0 ? static_cast<size_t>(length) : 0);
  for (size_t i = 0; i < text.size();) {
    const bool sequence =
        text[i] == '\033' && i + 2 < text.size() && (text[i + 1] == '[' || text[i + 1] == 'O');
    keys.emplace_back(text.substr(i, sequence ? 3 : 1));
    i += keys.back().size();
  }
  return keys;
}

class Top {
 public:
  explicit Top(double interval) { state_.interval = interval; }

  int run() {
    const Signals signals;
    FullScreen terminal;
    look();
    while (stop_signal == 0) {
      if (pause_signal != 0) {
        terminal.leave();
        pause_signal = 0;
        std::raise(SIGSTOP);
        terminal.enter();
      }
      FullScreen::show(top_frame(survey_, state_, screen()));
      if (!wait_for_keys(signals)) break;
      if (!state_.paused && Clock::now() >= next_) look();
    }
    return stop_signal == 0 || stop_signal == SIGINT ? kDone : 128 + stop_signal;
  }

 private:
  void look() {
    using telemetry::Wanted;
    Wanted wanted = Wanted::memory | Wanted::utilization | Wanted::power | Wanted::temperature;
    const auto now = Clock::now();
    const bool all = now >= next_processes_;
    if (all) {
      wanted = wanted | Wanted::processes;
      next_processes_ = now + kProcessesEvery;
    }
    survey_ = look_around(wanted, all ? nullptr : &survey_);
    state_.remember(survey_);
    schedule();
  }
  void schedule() {
    next_ = Clock::now() +
            std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(state_.interval));
  }

  // Returns false if the user quits.
  bool wait_for_keys(const Signals& signals) {
    const auto left = std::max(Clock::duration(0), next_ - Clock::now());
    const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
    const timespec limit = {nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
    pollfd keyboard = {STDIN_FILENO, POLLIN, 0};
    if (ppoll(&keyboard, 1, state_.paused ? nullptr : &limit, &signals.outside()) <= 0) return true;
    bool ended = false;
    for (const std::string& key : read_keys(ended)) {
      if (!state_.press(key, static_cast<int>(survey_.places.size()))) return false;
      if (key == "+" || key == "-") schedule();
    }
    return !ended;
  }

  TopState state_;
  Survey survey_;
  Clock::time_point next_, next_processes_;
};

int top(double interval) {
  if (interval < 0.5 || interval > 60) fail(kUsage, "--interval: expected 0.5 to 60 seconds");
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0)
    fail(kUsage, "top needs a terminal; innkeeper status prints once");
  return Top(interval).run();
}

}  // namespace

void register_top(CLI::App& program) {
  CLI::App& command = *program.add_subcommand("top", "Watch all GPUs, full screen: h in it shows its keys");
  const auto interval = std::make_shared<double>(1);
  command.add_option("--interval", *interval, "Seconds between looks, 0.5 to 60 (1)")->type_name("SECONDS");
  on_run(command, [interval] { return top(*interval); });
}

}  // namespace innkeeper::cli
