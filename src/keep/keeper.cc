#include "keep/keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/descriptors.h"
#include "keep/channel.h"
#include "keep/children.h"
#include "keep/light.h"
#include "keep/restore.h"
#include "lease/logout.h"
#include "lease/process.h"

namespace innkeeper::keep {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Time within which two equal signals count as one. A signal to the whole group reaches each process within
// microseconds, but the waiting process may pass it on much later on a busy machine.
constexpr milliseconds kSameSignal{2000};
// Period of reading the waiting process's state, because no process is notified of a SIGSTOP to it.
constexpr milliseconds kLookForStop{1000};

// Sets the name that ps shows. It contains no part of this program's name. `pkill innkeeper` therefore finds
// only the process that passes its signal on, while a signal to the group reaches both.
void set_title(const std::string& title) {
  prctl(PR_SET_NAME, "gpu-lease");
  std::ifstream stat("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(stat)), std::istreambuf_iterator<char>());
  // Fields 48 and 49 are the addresses of the arguments' begin and end. The second field, a name,
  // may contain spaces.
  size_t at = text.rfind(')');
  uintptr_t begin = 0, end = 0;
  for (int field = 3; at != std::string::npos && field <= 49; ++field) {
    at = text.find(' ', at + 1);
    if (at == std::string::npos) return;
    if (field == 48) begin = std::strtoull(text.c_str() + at, nullptr, 10);
    if (field == 49) end = std::strtoull(text.c_str() + at, nullptr, 10);
  }
  if (begin == 0 || end <= begin + 1) return;
  char* const area = reinterpret_cast<char*>(begin);
  std::memset(area, 0, end - begin);
  std::copy_n(title.data(), std::min<size_t>(title.size(), end - begin - 1), area);
}

class Keeping {
 public:
  Keeping(lease::Arbiter& arbiter, lease::Lease& lease, int channel)
      : arbiter_(arbiter), lease_(lease), channel_(channel) {}

  [[noreturn]] void run(const std::string& title, const Become& become, const Inherited& inherited) {
    start(become, inherited);
    set_title(title);
    let_go({signals_.fd(), channel_, lease_.descriptor(), arbiter_.directory().fd()});
    while (true) {
      const bool looks = may_be_lost_ || (channel_ >= 0 && children_.running());
      pollfd events[] = {{signals_.fd(), POLLIN, 0}, {channel_, POLLIN, 0}};
      const int ready = poll(events, std::size(events), looks ? static_cast<int>(kLookForStop.count()) : -1);
      if (ready == 0 && !std::exchange(light_, true)) drop_code();
      read_signals();
      read_channel();
      reap();
      if (ready == 0) look_for_stop();
      look_for_lease();
    }
  }

 private:
  void start(const Become& become, const Inherited& inherited) {
    int wrong[2];
    if (pipe2(wrong, O_CLOEXEC) != 0) give_up(errno);
    const pid_t command = fork();
    if (command < 0) give_up(errno);
    if (command == 0) {
      // The child reports it: the command may begin, and the keeper be killed, before the
      // keeper sends a report.
      tell(channel_, Report{Event::forked, getpid()});
      inherited.restore();
      const int error = become();
      _exit(write(wrong[1], &error, sizeof error) > 0 ? 127 : 126);
    }
    children_.set_command(command);
    close(wrong[1]);
    int error = 0;
    ssize_t length = 0;
    while ((length = read(wrong[0], &error, sizeof error)) < 0 && errno == EINTR) {
    }
    if (length == static_cast<ssize_t>(sizeof error)) give_up(error);
    tell(channel_, Report{Event::began});
    open_nowhere();
  }

  [[noreturn]] void give_up(int error) {
    tell(channel_, Report{Event::failed, error});
    _exit(1);
  }

  void read_signals() {
    signalfd_siginfo about;
    while (signals_.next(about)) {
      Seen& seen = seen_.at(about.ssi_signo);
      ++seen.count;
      seen.last = Clock::now();
    }
  }

  void read_channel() {
    Passed passed;
    bool gone = false;
    while (channel_ >= 0 && hear(channel_, passed, gone)) pass_on(passed);
    if (!gone) return;
    close(std::exchange(channel_, -1));
    // The waiting process was killed, since it waits for the command. Its user meant to kill
    // the command itself.
    children_.signal(SIGKILL);
    take_over();
  }

  // A signal that we also received was sent to the group, and the command has received it, unless it
  // has left the group.
  void pass_on(const Passed& passed) {
    Seen& seen = seen_.at(static_cast<size_t>(passed.signal));
    if (Clock::now() - seen.last > kSameSignal) seen.count = 0;
    const bool to_all = seen.count > 0;
    if (to_all) --seen.count;
    if ((to_all || was_undone(passed.signal)) && getpgid(children_.command()) == getpgrp()) return;
    children_.signal(passed.signal, passed.code, passed.value);
  }

  // The kernel drops a pending stop signal when a SIGCONT arrives, and the reverse. So the waiting
  // process may pass on a signal that this process never received. The opposite signal, which it did
  // receive, came later.
  bool was_undone(int signal) const {
    const auto had = [this](int other) {
      const Seen& seen = seen_.at(static_cast<size_t>(other));
      return seen.count > 0 && Clock::now() - seen.last <= kSameSignal;
    };
    if (signal == SIGCONT) return had(SIGTSTP) || had(SIGTTIN) || had(SIGTTOU);
    return (signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU) && had(SIGCONT);
  }

  void reap() {
    children_.look({.stopped =
                        [this](int signal) {
                          by_us_ = std::exchange(stops_it_, false);
                          if (by_us_) return;
                          told_stop_ = true;
                          report({Event::stopped, signal});
                        },
                    .continued =
                        [this] {
                          by_us_ = false;
                          if (std::exchange(told_stop_, false)) continued_ = Clock::now();
                          report({Event::continued});
                          wake();
                        }});
    if (children_.ended() && !told_) {
      told_ = true;
      wake();  // It may have been killed while it was stopped.
      report({Event::ended, children_.status(), !children_.none()});
      if (!children_.none()) take_over();
    }
    if (!children_.none()) return;
    if (ours_) lease_.release();
    _exit(0);
  }

  void report(const Report& message) {
    if (channel_ >= 0) tell(channel_, message);
  }

  void wake() const {
    if (getppid() == parent_) kill(parent_, SIGCONT);
  }

  void look_for_stop() {
    if (channel_ < 0 || !children_.running()) return;
    const bool waits_stopped = lease::process_state(parent_) == 'T';
    if (children_.stopped() && by_us_ && !waits_stopped) children_.signal(SIGCONT);
    if (children_.stopped() || !waits_stopped) return;
    // It may have stopped itself for a stop of the command that was over by then.
    if (Clock::now() - continued_ < 2 * kLookForStop) {
      wake();
    } else {
      stops_it_ = true;
      children_.signal(SIGSTOP);
    }
  }

  void look_for_lease() {
    const Restore::Found found = restore_.look(lease_);
    if (found == Restore::Found::lost) report({Event::lost});
    if (found == Restore::Found::ended) report({Event::released});
    if (found != Restore::Found::restored) return;
    ours_ = true;
    drop_code();
  }

  // The lease's record named the waiting process. If it cannot be changed (the directory is gone, or locked
  // for long), the lease is as good: it ends with the last descriptor.
  void take_over() {
    if (!ours_) ours_ = arbiter_.take_over(lease_).ok();
  }

  lease::Arbiter& arbiter_;
  lease::Lease& lease_;
  int channel_;
  const pid_t parent_ = getppid();
  Signals signals_;
  Children children_{Children::Queues::do_not_count};
  // Number of each signal that this process has received and the waiting process has not passed on yet.
  struct Seen {
    int count = 0;
    Clock::time_point last{};
  };
  std::array<Seen, 65> seen_{};
  const bool may_be_lost_ = !lease::removed_at_logout(arbiter_.directory()).empty();
  Restore restore_;
  Clock::time_point continued_{};  // Time at which the command went on after a reported stop.
  bool light_ = false;
  bool told_stop_ = false;
  bool stops_it_ = false;  // True: we stop the command, because the waiting process is stopped.
  bool by_us_ = false;     // True: the command is stopped for that reason.
  bool told_ = false;      // True: the command's end was reported.
  bool ours_ = false;      // True: the lease's record names this process.
};

}  // namespace

Result<Keeper> start_keeper(lease::Arbiter& arbiter, lease::Lease& lease, const std::string& title,
                            const Become& become, const Inherited& inherited) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return Status(Code::busy, std::string("cannot keep a lease: ") + std::strerror(errno));
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    Keeping(arbiter, lease, ends[1]).run(title, become, inherited);
  }
  const int error = errno;
  close(ends[1]);
  if (child > 0) return Keeper{child, ends[0]};
  close(ends[0]);
  return Status(Code::busy, std::string("cannot start a process: ") + std::strerror(error));
}

}  // namespace innkeeper::keep
