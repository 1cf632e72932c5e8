#include "queue/runner.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>

#include "base/log.h"
#include "keep/children.h"
#include "lease/kill_point.h"
#include "lease/live_file.h"
#include "queue/limits.h"
#include "queue/mend.h"
#include "queue/scheduler.h"
#include "queue/watch.h"

namespace innkeeper::queue {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kRestart{50};
constexpr milliseconds kRestartAtMost{30'000};
constexpr int kFailuresAtMost = 8;
constexpr off_t kLogAtMost = 1 << 20;

// The lock on runner.lock: the process that holds it is the runner.
class RunnerLock {
 public:
  explicit RunnerLock(const QueueDirectory& directory) : path_(directory.runner_lock()) {}

  bool take() {
    file_ =
        lease::OpenFile([&] { return open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600); });
    if (!file_.valid() || !lease::lock_for_life(file_.fd())) return false;
    char text[32];
    // The number is for people and tests.
    const int length = std::snprintf(text, sizeof text, "%d\n", getpid());
    return ftruncate(file_.fd(), 0) == 0 &&
           pwrite(file_.fd(), text, static_cast<size_t>(length), 0) == length;
  }
  void give_back() { file_.close(); }
  // Returns whether the file's name still leads to it. If not, a user has removed it, and
  // another runner may have begun.
  bool intact() const {
    struct stat ours {
    }, named{};
    return fstat(file_.fd(), &ours) == 0 && stat(path_.c_str(), &named) == 0 && ours.st_ino == named.st_ino &&
           ours.st_dev == named.st_dev;
  }

 private:
  const std::string path_;
  lease::OpenFile file_;
};

void say(int fd) {
  const char letter = 'r';
  if (fd >= 0 && write(fd, &letter, 1) < 0) log(LogLevel::debug, "nobody waits for the runner to begin");
}

// Starts jobs until there is no work left.
Status start_jobs(RunnerLock& lock, Watch& watch, Scheduler& scheduler, int ready) {
  IK_RETURN_IF_ERROR(scheduler.catch_up());
  say(ready);  // The starter reads an up-to-date database from here on.
  IK_RETURN_IF_ERROR(scheduler.clear_leftovers());
  for (;;) {
    if (!lock.intact())
      return Status(Code::unavailable,
                    "the runner's lock was removed: jobs go on, another runner takes over");
    if (scheduler.moved())
      return Status(Code::unavailable,
                    "the queue's database was replaced: another runner goes on with the new");
    IK_RETURN_IF_ERROR(scheduler.pass());
    Result<bool> idle = scheduler.nothing_to_do();
    if (!idle.ok()) return idle.status();
    if (idle.value()) {
      // Prunes a part of the history per pass, so that newly added jobs go first.
      const Result<bool> pruned = scheduler.prune();
      if (pruned.ok() && pruned.value()) continue;
      if (!pruned.ok()) log(LogLevel::warn, "the history was not pruned: " + pruned.status().message());
      lease::step("runner idle");
      // The lock is released before the last look: a program that adds a job later
      // finds no runner and starts one.
      lock.give_back();
      lease::step("runner left");
      idle = scheduler.nothing_to_do();
      if (!idle.ok()) return idle.status();
      if (idle.value() || !lock.take()) return Status::okay();
      continue;
    }
    watch.wait(scheduler.patience(), scheduler.descriptor());
  }
}

Status work(const QueueDirectory& directory, const Program& program, int ready) {
  RunnerLock lock(directory);
  if (!lock.take()) {
    say(ready);
    return Status::okay();  // Another runner is alive.
  }
  if (const Result<bool> mended = mend(directory); !mended.ok()) return mended.status();
  Result<Store> store = Store::open(directory, Durable::power);
  if (!store.ok()) return store.status();
  Watch watch(directory);
  auto scheduler = std::make_unique<Scheduler>(directory, program, std::move(store).value());
  const Status status = start_jobs(lock, watch, *scheduler, ready);
  // SQLite removes the log of its last connection by name; that name must not
  // lead to another database by then.
  const DatabaseStays stays(directory);
  scheduler.reset();
  return status;
}

int work_and_say(const QueueDirectory& directory, const Program& program, int ready) {
  signal(SIGCHLD, SIG_IGN);  // Supervisors and notifications leave no zombies.
  const Status status = work(directory, program, ready);
  if (!status.ok()) log(LogLevel::error, status.message());
  return status.ok() ? 0 : 1;
}

void open_log(const QueueDirectory& directory) {
  const std::string path = directory.runner_log();
  int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
  struct stat about {};
  if (fd >= 0 && fstat(fd, &about) == 0 && about.st_size > kLogAtMost && ftruncate(fd, 0) != 0) return;
  if (fd < 0) fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
  dup2(fd, 1);
  dup2(fd, 2);
  close(fd);
}

// Starts the runner, and restarts it after it was killed, until it ends by itself.
[[noreturn]] void watch_over(const QueueDirectory& directory, const Program& program, int ready) {
  milliseconds pause = kRestart;
  for (int failures = 0;;) {
    const auto begun = Clock::now();
    const pid_t runner = fork();
    if (runner == 0) _exit(work_and_say(directory, program, ready));
    const bool first = ready >= 0;
    if (first) close(ready);
    ready = -1;
    int status = 0;
    while (runner > 0 && waitpid(runner, &status, 0) < 0 && errno == EINTR) {
    }
    // A runner that cannot even begin reports that to its starter and is not restarted.
    if (runner > 0 && WIFEXITED(status) && (WEXITSTATUS(status) == 0 || first)) _exit(0);
    if (Clock::now() - begun > kRestartAtMost) failures = 0;
    // A kill from outside is no failure of the runner. After its own failures and crashes the pause grows.
    const bool outside = runner > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (!outside && ++failures > kFailuresAtMost) _exit(1);
    pause = failures == 0 ? kRestart : std::min(kRestart * (1 << failures), kRestartAtMost);
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace

int run_runner(const std::string& path, const Program& program) {
  const Result<std::shared_ptr<const QueueDirectory>> opened = QueueDirectory::open(path);
  if (!opened.ok()) {
    std::fprintf(stderr, "innkeeper: %s\n", opened.status().message().c_str());
    return 1;
  }
  const QueueDirectory& directory = *opened.value();
  raise_limits();
  signal(SIGXFSZ, SIG_IGN);  // If even the hard limit is too low, writes fail with an error that is reported.
  for (int fd = 3; fd < 1024; ++fd) close(fd);  // A careless caller may have left descriptors open.
  open_log(directory);
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) return 1;
  const pid_t watcher = fork();
  if (watcher < 0) return 1;
  if (watcher == 0) {
    close(ready[0]);
    setsid();
    prctl(PR_SET_NAME, keep::kQueueName);
    if (chdir("/") != 0) log(LogLevel::warn, "the runner stays in the caller's directory");
    watch_over(directory, program, ready[1]);
  }
  close(ready[1]);
  char letter = 0;
  ssize_t length = 0;
  while ((length = read(ready[0], &letter, 1)) < 0 && errno == EINTR) {
  }
  return length == 1 ? 0 : 1;  // 1: the runner failed at once; its log gives the reason.
}

}  // namespace innkeeper::queue
