#include "queue/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "keep/restore.h"
#include "lease/here.h"
#include "lease/kill_point.h"
#include "lease/process.h"
#include "queue/environment.h"
#include "queue/keeper.h"
#include "queue/life.h"
#include "queue/limits.h"
#include "queue/tree.h"

extern char** environ;

namespace innkeeper::queue {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLookForRunner{2000};
constexpr milliseconds kWriteAgain{1000};
// Processes that a program leaves behind may end by themselves: the last lines of a `tee`,
// workers that see their pipe close.
constexpr milliseconds kLeftAlone{2000};
constexpr milliseconds kKillAgain{2};
// Such a process belongs to another user or is stuck in the kernel.
constexpr milliseconds kKillAgainAtMost{1000};

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD, SIGUSR1, SIGUSR2}) sigaddset(&set, signal);
  return set;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> list;
  for (std::string& word : words) list.push_back(word.data());
  list.push_back(nullptr);
  return list;
}

// Returns the earliest of several moments, of which some may be unset.
Clock::time_point earliest(Clock::time_point first,
                           std::initializer_list<std::optional<Clock::time_point>> rest) {
  for (const auto& each : rest)
    if (each) first = std::min(first, *each);
  return first;
}

class Supervisor {
 public:
  Supervisor(Launch launch, const QueueDirectory& directory, const Program& program)
      : launch_(std::move(launch)), directory_(directory), program_(program) {}

  [[noreturn]] void run() {
    lease::step("supervisor started");
    prctl(PR_SET_NAME, "innkeeper-job");
    setsid();
    signal(SIGPIPE, SIG_IGN);
    take_lease();
    if (start_job()) watch_job();
    finish();
    _exit(0);
  }

 private:
  // Until now the lease record names the runner.
  void take_lease() {
    if (launch_.lease.held() && lease::take_over_here(launch_.lease).ok())
      (void)launch_.lease.share_through_exec();
  }

  // Output of another job with this number is kept under another name. A database that lost its end, or that
  // an old copy replaced, gives numbers again.
  int open_output() const {
    const std::string path = directory_.output(launch_.id, launch_.attempt);
    const int flags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_APPEND | O_CLOEXEC;
    struct stat about {};
    const bool used = lstat(path.c_str(), &about) == 0 && about.st_size > 0;
    if (used && rename(path.c_str(), (path + ".of-" + std::to_string(about.st_mtim.tv_sec)).c_str()) != 0)
      return -1;
    return open(path.c_str(), flags, 0600);
  }

  bool start_job() {
    int go[2], wrong[2];
    if (pipe2(go, O_CLOEXEC) != 0 || pipe2(wrong, O_CLOEXEC) != 0) return cannot_start(errno);
    const int output = open_output();
    if (output < 0) return cannot_start(errno);
    if (launch_.lease.held()) {
      set_variable(launch_.environment, lease::kLeaseVariable, launch_.lease.id());
      set_variable(launch_.environment, lease::kLeasedVariable, launch_.lease.uuids());
      set_variable(launch_.environment, lease::kDescriptorVariable,
                   std::to_string(launch_.lease.descriptor()));
    }
    // fork()'s handler closes the descriptor of a lease that is not shared; this lease is shared.
    job_ = fork();
    if (job_ == 0) become_job(output, go, wrong);
    const int error = errno;
    close(output);
    close(go[0]);
    close(wrong[1]);
    if (job_ < 0) return cannot_start(error);
    setpgid(job_, job_);

    lease::step("before began");
    Began began;
    const auto line = lease::process_line(getpid());
    began.supervisor = line.empty() ? lease::ProcessKey{getpid(), 0} : line[0];
    // From here on the job may have run. Until then it only waits, and ends if the supervisor ends.
    if (!write_began(launch_.life.fd(), began)) {
      const int reason = errno;
      kill(job_, SIGKILL);
      return cannot_start(reason);
    }
    lease::step("began");
    const char letter = 'g';
    while (write(go[1], &letter, 1) < 0 && errno == EINTR) {
    }
    close(go[1]);
    int failed = 0;
    ssize_t length = 0;
    while ((length = read(wrong[0], &failed, sizeof failed)) < 0 && errno == EINTR) {
    }
    close(wrong[0]);
    lease::step("job started");
    return length == static_cast<ssize_t>(sizeof failed) ? cannot_start(failed) : true;
  }

  bool cannot_start(int error) {
    ending_.how = How::not_started;
    ending_.code = error;
    return false;
  }

  [[noreturn]] void become_job(int output, const int* go, const int* wrong) {
    close(go[1]);  // With this end open the job would never see that the supervisor is gone.
    setpgid(0, 0);
    char letter = 0;
    ssize_t length = 0;
    while ((length = read(go[0], &letter, 1)) < 0 && errno == EINTR) {
    }
    if (length != 1) _exit(127);
    const int nothing = open("/dev/null", O_RDONLY);
    dup2(nothing, 0);
    if (nothing > 2) close(nothing);
    dup2(output, 1);
    dup2(output, 2);
    struct sigaction usual {};
    usual.sa_handler = SIG_DFL;
    for (int signal = 1; signal < SIGRTMIN; ++signal) sigaction(signal, &usual, nullptr);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    // The job must not inherit descriptors of the runner, whichever code opened them.
    for (const int fd : open_descriptors_but({launch_.life.fd(), launch_.lease.descriptor()}))
      fcntl(fd, F_SETFD, FD_CLOEXEC);
    std::vector<char*> arguments = pointers(launch_.command);
    std::vector<char*> variables = pointers(launch_.environment);
    take_limits(launch_.limits);
    environ = variables.data();  // Set before execvp(), which searches the job's PATH.
    const bool is_there = chdir(launch_.directory.c_str()) == 0;
    if (is_there) execvp(arguments[0], arguments.data());
    const int error = errno;
    if (!is_there)
      dprintf(2, "innkeeper: the job's directory %s: %s\n", launch_.directory.c_str(), std::strerror(error));
    const ssize_t told = write(wrong[1], &error, sizeof error);
    _exit(told > 0 ? 127 : 126);
  }

  // Watches the job until none of its processes is left.
  void watch_job() {
    if (launch_.time_limit) deadline_ = Clock::now() + *launch_.time_limit;
    const sigset_t set = watched_signals();
    look_again_ = Clock::now() + kLookForRunner;
    while (!reap()) {
      auto until = earliest(look_again_, {kill_at_});
      if (!stopped_at_) until = earliest(until, {deadline_, left_until_});
      const auto rest = std::max<std::chrono::nanoseconds>(until - Clock::now(), std::chrono::nanoseconds(0));
      const timespec limit = {static_cast<time_t>(rest.count() / 1'000'000'000),
                              rest.count() % 1'000'000'000};
      siginfo_t about;
      const int signal = sigtimedwait(&set, &about, &limit);
      if (signal > 0) handle(signal);
      keep_time(Clock::now());
    }
  }

  void keep_time(Clock::time_point now) {
    if (!stopped_at_ && deadline_ && now >= *deadline_) {
      deadline_.reset();
      end_job(How::time_limit);
    }
    if (!stopped_at_ && left_until_ && now >= *left_until_) end_what_is_left();
    if (kill_at_ && now >= *kill_at_) {
      kill_again_ = tree_.kill_all() ? kKillAgain : std::min(2 * kill_again_, kKillAgainAtMost);
      kill_at_ = Clock::now() + kill_again_;
    }
    if (now >= look_again_) {
      futimens(launch_.life.fd(),
               nullptr);  // A touch records how long the attempt lived, in case its end is lost.
      restore_lease();
      ensure_runner();
      look_again_ = now + kLookForRunner;
    }
  }

  void restore_lease() {
    const keep::Restore::Found found = restore_.look(launch_.lease);
    const std::string whose = "job " + std::to_string(launch_.id) + ": ";
    if (found == keep::Restore::Found::lost)
      log(LogLevel::warn,
          whose + "a logout removed its lease " + launch_.lease.id() + ": " + restore_.why().message());
    if (found == keep::Restore::Found::ended)
      log(LogLevel::warn, whose + "its lease " + launch_.lease.id() +
                              " was released: others may be given its GPUs, which it goes on to use");
  }

  void handle(int signal) {
    if (signal == SIGTERM || signal == SIGINT || signal == SIGHUP) end_job(How::stopped);
    if (signal == SIGUSR1 && !stopped_at_ && !kill_at_) {
      stopped_at_ = Clock::now();
      Tree::signal(SIGSTOP, group());
    }
    if (signal == SIGUSR2) go_on();
  }

  // Process group of the program; 0 once the program is reaped, because another group may reuse its number.
  pid_t group() const { return ended_ ? 0 : job_; }

  void go_on() {
    if (!stopped_at_) return;
    const auto lost = Clock::now() - *stopped_at_;
    if (deadline_) *deadline_ += lost;
    if (left_until_) *left_until_ += lost;
    stopped_at_.reset();
    Tree::signal(SIGCONT, group());
  }

  void end_job(How why) {
    if (kill_at_) return;  // The end is in progress.
    // The program has ended, and its end is recorded.
    if (ended_ && !launch_.linger) return end_what_is_left();
    why_ = why;
    had_ended_ = ended_;
    end_all();
  }

  void end_what_is_left() {
    left_.ended_by_us = true;
    note_left();
    end_all();
  }

  void end_all() {
    left_until_.reset();
    Tree::signal(SIGTERM, group());
    go_on();
    kill_at_ = Clock::now() + launch_.grace;
  }

  // Reaps children. Returns true if neither the program nor a process that it left behind lives.
  bool reap() {
    int status = 0;
    pid_t child = 0;
    bool program = false;
    while ((child = waitpid(-1, &status, WNOHANG)) > 0) {
      if (child != job_) continue;
      program = ended_ = true;
      ending_.how = WIFEXITED(status) ? How::exited : How::signalled;
      ending_.code = WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status);
    }
    if (child < 0) return true;  // Every descendant has an ancestor among our children.
    if (program) leave_behind();
    return false;
  }

  // Called when the program has ended and other processes of the job live.
  void leave_behind() {
    left_.program = ending_;
    note_left();
    if (launch_.linger || kill_at_) return;
    deadline_.reset();
    left_until_ = stopped_at_.value_or(Clock::now()) + kLeftAlone;
  }

  void note_left() {
    const std::vector<lease::Descendant> others = lease::descendants(getpid());
    if (others.empty()) return;  // The others have ended meanwhile.
    left_.count = static_cast<int>(others.size());
    left_.first = others.front().process.pid;
    left_.name = others.front().name;
    write_left(launch_.life.fd(), left_);
    directory_.wake();
  }

  // Decides how the whole job ended. A program that succeeded at the last moment counts as successful.
  void settle() {
    if (!why_) return;
    const bool well = ending_.how == How::exited && ending_.code == 0;
    if (!well || had_ended_) ending_.how = *why_;
  }

  void finish() {
    lease::step("job ended");
    settle();
    rusage usage{};
    if (getrusage(RUSAGE_CHILDREN, &usage) == 0) ending_.peak_host = KiB(usage.ru_maxrss);
    ending_.ended_ns = wall_clock_ns();
    launch_.lease.release();
    // A disk that is full or fails for a while does not lose the ending: the job stays "running" until then.
    while (!write_ended(launch_.life.fd(), ending_)) std::this_thread::sleep_for(kWriteAgain);
    lease::step("ended");
    ensure_runner();
  }

  // The keeper starts the runner as long as it lives.
  void ensure_runner() {
    if (getppid() != keeper_) ensure_runner_outside(directory_, program_);
  }

  Launch launch_;
  const QueueDirectory& directory_;
  const Program& program_;
  const pid_t keeper_ = getppid();
  Tree tree_;
  pid_t job_ = -1;
  bool ended_ = false;  // True: the program has ended and is reaped.
  Ending ending_;       // End of the program.
  Left left_;
  std::optional<How> why_;  // Reason for which the job was ended; none: it was not.
  bool had_ended_ = false;  // True: the program had ended before the job was ended.
  keep::Restore restore_;
  // `left_until_`: time until which processes that the program left behind may go on.
  std::optional<Clock::time_point> deadline_, left_until_, kill_at_, stopped_at_;
  Clock::time_point look_again_;
  milliseconds kill_again_ = kKillAgain;
};

}  // namespace

Status start_supervisor(Launch launch, const QueueDirectory& directory, const Program& program) {
  if (!launch.life.keep_in_children(true))
    return Status(Code::io_error, std::string("cannot pass a job's life on: ") + std::strerror(errno));
  if (launch.lease.held()) {
    const Result<int> shared = launch.lease.share_through_exec();
    if (!shared.ok()) return shared.status();
  }
  // Signals are blocked between fork() and the supervisor's own handling.
  const sigset_t set = watched_signals();
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, &set, &before);
  lease::step("before fork");
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGCHLD, SIG_DFL);  // The runner ignores its children; the supervisor needs its job's status.
    keep(launch.life, launch.lease, directory, program,
         [&] { Supervisor(std::move(launch), directory, program).run(); });
  }
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (child < 0) return Status(Code::busy, std::string("cannot start a process: ") + std::strerror(error));
  lease::step("forked");
  launch.lease.leave();
  return Status::okay();
}

}  // namespace innkeeper::queue
