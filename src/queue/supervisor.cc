#include "queue/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>

#include "lease/arbiter.h"
#include "lease/kill_point.h"
#include "lease/process.h"
#include "queue/environment.h"
#include "queue/life.h"
#include "queue/limits.h"

extern char** environ;

namespace innkeeper::queue {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLookForRunner{2000};
constexpr milliseconds kWriteAgain{1000};

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD, SIGUSR1, SIGUSR2}) sigaddset(&set, signal);
  return set;
}

// What the runner has open is not the job's, whoever opened it.
void close_on_exec_all_but(const std::vector<int>& keep) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const int fd = std::atoi(entry.path().filename().c_str());
    if (fd > 2 && std::find(keep.begin(), keep.end(), fd) == keep.end()) fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> list;
  for (std::string& word : words) list.push_back(word.data());
  list.push_back(nullptr);
  return list;
}

class Supervisor {
 public:
  Supervisor(Launch launch, const Folder& folder, const Program& program)
      : launch_(std::move(launch)), folder_(folder), program_(program) {}

  [[noreturn]] void run() {
    lease::step("supervisor started");
    prctl(PR_SET_NAME, "innkeeper-job");
    prctl(PR_SET_CHILD_SUBREAPER, 1);  // so that whatever the job leaves behind is still found below us
    setsid();
    signal(SIGPIPE, SIG_IGN);
    take_lease();
    if (start_job()) watch_job();
    finish();
    _exit(0);
  }

 private:
  // The record names the runner until now. If it cannot be changed (the folder is gone, or locked for long)
  // the lease is as good: it ends when the last descriptor is closed.
  void take_lease() {
    if (!launch_.lease.held()) return;
    Result<lease::Arbiter> arbiter = lease::Arbiter::open();
    if (!arbiter.ok()) return;
    const int copy = fcntl(launch_.lease.descriptor(), F_DUPFD_CLOEXEC, 0);
    Result<lease::Lease> adopted = arbiter.value().adopt(copy);
    if (!adopted.ok()) {
      close(copy);
      return;
    }
    launch_.lease.leave();
    launch_.lease = std::move(adopted).value();
    (void)launch_.lease.share_through_exec();
  }

  bool start_job() {
    int go[2], wrong[2];
    if (pipe2(go, O_CLOEXEC) != 0 || pipe2(wrong, O_CLOEXEC) != 0) return cannot_start(errno);
    const int output = open(folder_.output(launch_.id, launch_.attempt).c_str(),
                            O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_APPEND | O_CLOEXEC, 0600);
    if (output < 0) return cannot_start(errno);
    if (launch_.lease.held()) {
      set_variable(launch_.environment, lease::kLeaseVariable, launch_.lease.id());
      set_variable(launch_.environment, lease::kDescriptorVariable,
                   std::to_string(launch_.lease.descriptor()));
    }
    // A lease's descriptor is closed by fork()'s handler unless it is shared, which it is.
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
    // From here on the job may have run. Until then it only waits, and ends if we do.
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
    close(go[1]);  // else it would never see that the supervisor is gone
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
    close_on_exec_all_but({launch_.life.fd(), launch_.lease.descriptor()});
    std::vector<char*> arguments = pointers(launch_.command);
    std::vector<char*> variables = pointers(launch_.environment);
    take_limits(launch_.limits);
    environ = variables.data();  // before execvp: it is the job's PATH that counts
    if (chdir(launch_.directory.c_str()) == 0) execvp(arguments[0], arguments.data());
    const int error = errno;
    const ssize_t told = write(wrong[1], &error, sizeof error);
    _exit(told > 0 ? 127 : 126);
  }

  void watch_job() {
    if (launch_.time_limit) deadline_ = Clock::now() + *launch_.time_limit;
    const sigset_t set = watched_signals();
    auto look_again = Clock::now() + kLookForRunner;
    while (!reap()) {
      auto until = look_again;
      if (kill_at_) until = std::min(until, *kill_at_);
      if (deadline_ && !stopped_at_) until = std::min(until, *deadline_);
      const auto rest = std::max<std::chrono::nanoseconds>(until - Clock::now(), std::chrono::nanoseconds(0));
      const timespec limit = {static_cast<time_t>(rest.count() / 1'000'000'000),
                              rest.count() % 1'000'000'000};
      siginfo_t about;
      const int signal = sigtimedwait(&set, &about, &limit);
      if (signal > 0) handle(signal);
      const auto now = Clock::now();
      if (deadline_ && !stopped_at_ && now >= *deadline_) {
        deadline_.reset();
        end_job(How::time_limit);
      }
      if (kill_at_ && now >= *kill_at_) {
        kill(-job_, SIGKILL);
        kill_at_ = now + kGrace;
      }
      if (now >= look_again) {
        (void)ensure_runner(folder_, program_);
        look_again = now + kLookForRunner;
      }
    }
  }

  void handle(int signal) {
    if (signal == SIGTERM || signal == SIGINT || signal == SIGHUP) end_job(How::stopped);
    if (signal == SIGUSR1 && !stopped_at_ && !kill_at_) {
      stopped_at_ = Clock::now();
      kill(-job_, SIGSTOP);
    }
    if (signal == SIGUSR2) go_on();
  }

  void go_on() {
    if (!stopped_at_) return;
    if (deadline_) *deadline_ += Clock::now() - *stopped_at_;
    stopped_at_.reset();
    kill(-job_, SIGCONT);
  }

  void end_job(How why) {
    if (kill_at_) return;  // on its way
    why_ = why;
    kill(-job_, SIGTERM);
    go_on();
    kill_at_ = Clock::now() + kGrace;
  }

  // True: the job's program has ended. What it left behind is reaped as well.
  bool reap() {
    bool over = false;
    int status = 0;
    for (pid_t child = 0; (child = waitpid(-1, &status, WNOHANG)) > 0;) {
      if (child != job_) continue;
      over = true;
      ending_.how = WIFEXITED(status) ? How::exited : How::signalled;
      ending_.code = WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status);
    }
    if (over && why_) {
      // It may have ended well by itself at the last moment.
      if (ending_.how != How::exited || ending_.code != 0) ending_.how = *why_;
      kill(-job_, SIGKILL);  // the rest of its group
    }
    return over;
  }

  void finish() {
    lease::step("job ended");
    rusage usage{};
    if (getrusage(RUSAGE_CHILDREN, &usage) == 0) ending_.peak_host = KiB(usage.ru_maxrss);
    ending_.ended_ns = lease::wall_clock_ns();
    launch_.lease.release();
    // A disk that is full or fails for a while does not lose the ending: the job stays "running" until then.
    while (!write_ended(launch_.life.fd(), ending_)) std::this_thread::sleep_for(kWriteAgain);
    lease::step("ended");
    (void)ensure_runner(folder_, program_);
  }

  Launch launch_;
  const Folder& folder_;
  const Program& program_;
  pid_t job_ = -1;
  Ending ending_;
  std::optional<How> why_;
  std::optional<Clock::time_point> deadline_, kill_at_, stopped_at_;
};

}  // namespace

Status start_supervisor(Launch launch, const Folder& folder, const Program& program) {
  if (!launch.life.keep_in_children(true))
    return Status(Code::io_error, std::string("cannot pass a job's life on: ") + std::strerror(errno));
  if (launch.lease.held()) {
    const Result<int> shared = launch.lease.share_through_exec();
    if (!shared.ok()) return shared.status();
  }
  // No signal between fork() and the supervisor's own handling.
  const sigset_t set = watched_signals();
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, &set, &before);
  lease::step("before fork");
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGCHLD, SIG_DFL);  // the runner ignores its children; the supervisor wants its job's status
    Supervisor(std::move(launch), folder, program).run();
  }
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (child < 0) return Status(Code::busy, std::string("cannot start a process: ") + std::strerror(error));
  lease::step("forked");
  launch.lease.leave();
  return Status::okay();
}

}  // namespace innkeeper::queue
