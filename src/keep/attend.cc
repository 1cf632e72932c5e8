#include "keep/attend.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/descriptors.h"
#include "keep/channel.h"
#include "keep/children.h"
#include "keep/keeper.h"
#include "keep/light.h"
#include "keep/restore.h"
#include "keep/signals.h"
#include "lease/process.h"

namespace innkeeper::keep {
namespace {

// A signal to the group reaches the keeper as well, a moment earlier or later than this process.
constexpr timespec kUntilTheKeeperHasIt{0, 2'000'000};
// Time for the keeper's own end, after it has reported the command's: both processes' CPU times
// are then added up.
constexpr int kUntilTheKeeperEndsMs = 100;

// If the keeper still runs after this time, the wait may be long.
constexpr int kSoonMs = 1000;

// One `kill -9` of the command and the keeper kills them one after the other. If this process ended between
// the two kills, no process would hold the lease for the processes that the command left behind. So it
// waits this long.
constexpr std::chrono::milliseconds kUntilTheKeeperIsSafe{300};
// Period of the checks meanwhile that the keeper lives.
constexpr int kLookMs = 50;

class Attendant {
  using Clock = std::chrono::steady_clock;

 public:
  Attendant(lease::Arbiter& arbiter, lease::Lease lease) : arbiter_(arbiter), lease_(std::move(lease)) {}

  // Returns errno if the command did not begin.
  Result<int> run(const std::string& title, const Become& become) {
    Result<Keeper> keeper = start_keeper(arbiter_, lease_, title, become, inherited_);
    if (!keeper.ok()) return did_not_begin(keeper.status());
    keeper_ = keeper.value();
    while (true) {
      pollfd events[] = {{signals_.fd(), POLLIN, 0}, {keeper_.channel, POLLIN, 0}};
      const bool looks = keeper_.channel < 0;  // True: it looks for a lost lease, as the keeper did.
      const int patience = leaving_ ? kLookMs : light_ && !looks ? -1 : kSoonMs;
      if (poll(events, std::size(events), patience) == 0 && !std::exchange(light_, true)) drop_code();
      if (looks) look_for_lease();
      read_signals();
      if (std::optional<Result<int>> failed = read_channel()) return *std::move(failed);
      reap();
      if (leaving_ && keeper_.channel >= 0 && Clock::now() >= leaving_->at)
        end(leaving_->status, /*left=*/true);
    }
  }

 private:
  Result<int> did_not_begin(Result<int> why) {
    lease_.release();
    inherited_.restore();
    return why;
  }

  std::optional<Result<int>> read_channel() {
    Report report;
    bool gone = false;
    int stop = 0;
    while (keeper_.channel >= 0 && hear(keeper_.channel, report, gone)) {
      if (report.event == Event::failed) return did_not_begin(report.value);
      if (report.event == Event::forked) children_.set_command(report.value);
      if (report.event == Event::began) began();
      if (report.event == Event::stopped) stop = report.value;
      if (report.event == Event::continued) stop = 0;
      if (report.event == Event::lost) say_lost();
      if (report.event == Event::released) say_released();
      if (report.event != Event::ended) continue;
      if (!report.left) end(report.value, /*left=*/false);
      leaving_ = Leaving{report.value, Clock::now() + kUntilTheKeeperIsSafe};
    }
    if (stop != 0 && lease::process_state(children_.command()) == 'T') suffer(stop);
    if (!gone) return std::nullopt;
    close(std::exchange(keeper_.channel, -1));
    if (children_.command() != 0) return std::nullopt;
    return did_not_begin(Status(Code::unavailable, "the process that was to keep the lease was killed"));
  }

  void look_for_lease() {
    const Restore::Found found = restore_.look(lease_);
    if (found == Restore::Found::lost) say_lost();
    if (found == Restore::Found::ended) say_released();
  }

  void say_lost() const {
    say(" was removed from " + arbiter_.directory().path() +
        " by a logout, and could not be made again yet: others may be given its GPUs");
  }

  void say_released() const {
    const int64_t expires = lease_.expires_ns();
    const bool expired = expires != 0 && expires <= machine_clock_ns();
    say(std::string(expired ? " has expired" : " was released") +
        ": others may be given its GPUs, which the command goes on to use");
  }

  void say(const std::string& what) const {
    const std::string line = "innkeeper: the lease " + lease_.id() + what + "\n";
    (void)!write(STDERR_FILENO, line.data(), line.size());
  }

  void began() {
    open_nowhere(0, 1);
    let_go({signals_.fd(), keeper_.channel, lease_.descriptor(), arbiter_.directory().fd()});
  }

  void read_signals() {
    signalfd_siginfo about;
    while (signals_.next(about)) {
      const int signal = static_cast<int>(about.ssi_signo);
      if (signal == SIGCHLD) continue;
      // The signal is the keeper's, because the command goes on.
      if (signal == SIGCONT && about.ssi_code == SI_USER &&
          about.ssi_pid == static_cast<uint32_t>(keeper_.pid))
        continue;
      if (keeper_.channel >= 0) {
        nanosleep(&kUntilTheKeeperHasIt, nullptr);
        tell(keeper_.channel, Passed{signal, about.ssi_code, about.ssi_int});
      } else if (about.ssi_code != SI_KERNEL) {  // The terminal's signals reach the command by themselves.
        children_.signal(signal, about.ssi_code, about.ssi_int);
      }
    }
  }

  // Reaps the keeper, and after its death the command and its descendants.
  void reap() {
    children_.look({.stopped = [](int signal) { suffer(signal); }, .continued = nullptr});
    if (keeper_.channel >= 0 || !children_.none()) return;
    // A keeper that was killed between the command's end and its report takes the status with it. An unknown
    // status counts as a failure.
    const int own = children_.ended() ? children_.status() : SIGKILL;
    end(leaving_ ? leaving_->status : own, /*left=*/false);
  }

  [[noreturn]] void end(int status, bool left) {
    if (left) {
      lease_.leave();
    } else {
      lease_.release();
      pollfd keepers_end{keeper_.channel, 0, 0};
      if (keeper_.channel >= 0 && poll(&keepers_end, 1, kUntilTheKeeperEndsMs) == 1)
        waitpid(keeper_.pid, nullptr, 0);
    }
    if (WIFEXITED(status)) _exit(WEXITSTATUS(status));
    const rlimit no_core{0, 0};  // One core dump is enough: the command's.
    setrlimit(RLIMIT_CORE, &no_core);
    suffer(WTERMSIG(status));
    _exit(128 + WTERMSIG(status));  // The first process of a PID namespace cannot kill itself.
  }

  lease::Arbiter& arbiter_;
  lease::Lease lease_;
  Inherited inherited_;
  Signals signals_;
  Children children_{Children::Queues::do_not_count};
  Keeper keeper_;
  bool light_ = false;
  struct Leaving {
    int status;            // The command's, of wait().
    Clock::time_point at;  // Time at which this process ends, if the keeper lives until then.
  };
  std::optional<Leaving> leaving_;  // Set once the command has ended and left processes behind.
  Restore restore_;
};

}  // namespace

Result<int> attend(lease::Arbiter& arbiter, lease::Lease lease, const std::string& title,
                   const Become& become) {
  return Attendant(arbiter, std::move(lease)).run(title, become);
}

}  // namespace innkeeper::keep
