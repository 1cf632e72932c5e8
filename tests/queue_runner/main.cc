// queue_runner DIRECTORY: `innkeeper queue runner` for tests of the library.
// queue_runner --hop FILE: forks and ends, and so does its child, as fast as possible; ignores SIGTERM. Each
// process appends a byte to the file.
// queue_runner --ensure DIRECTORY: acts as a caller of the queue that needs a runner; prints "okay".
//
// INNKEEPER_KILL_STEP=NAME and INNKEEPER_KILL_FILE=PATH: kills itself (or the supervisor that it became) at
//   the first step of that name, once: the file is made at that moment, and while it is there nothing is
//   killed.
// INNKEEPER_WAIT_STEP=NAME and INNKEEPER_WAIT_FILE=PATH: makes the file at the first such step, and waits
//   until it is removed.
// INNKEEPER_CLOCK_ERROR=HOURS: it takes the wall clock to be so far ahead.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/clock.h"
#include "lease/kill_point.h"
#include "queue/queue_directory.h"
#include "queue/runner.h"

namespace {

void die_at(const char* step) {
  const char* const wanted = std::getenv("INNKEEPER_KILL_STEP");
  const char* const once = std::getenv("INNKEEPER_KILL_FILE");
  if (wanted == nullptr || once == nullptr || std::string_view(step) != wanted) return;
  if (open(once, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) < 0) return;
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

void wait_at(const char* step) {
  const char* const wanted = std::getenv("INNKEEPER_WAIT_STEP");
  const char* const file = std::getenv("INNKEEPER_WAIT_FILE");
  static bool waited = false;
  if (waited || file == nullptr || std::string_view(step) != wanted) return;
  waited = true;
  close(open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  while (access(file, F_OK) == 0) usleep(2000);
}

int hop(const char* path) {
  signal(SIGTERM, SIG_IGN);
  const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  while (fork() == 0) {
    if (write(file, "x", 1) != 1) return 1;
  }
  _exit(0);
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 3 && std::string_view(arguments[1]) == "--hop") return hop(arguments[2]);
  if (count == 3 && std::string_view(arguments[1]) == "--ensure") {
    const auto directory = innkeeper::queue::QueueDirectory::open(arguments[2]);
    const bool okay =
        directory.ok() && innkeeper::queue::ensure_runner(*directory.value(), {{arguments[0]}}).ok();
    return okay && std::puts("okay") >= 0 ? 0 : 1;
  }
  if (count != 2) return 2;
  if (std::getenv("INNKEEPER_KILL_STEP") != nullptr) innkeeper::lease::kill_point = die_at;
  if (std::getenv("INNKEEPER_WAIT_STEP") != nullptr) innkeeper::lease::kill_point = wait_at;
  if (const char* const hours = std::getenv("INNKEEPER_CLOCK_ERROR"))
    innkeeper::wall_clock_error_ns = std::atoll(hours) * 3'600'000'000'000;
  return innkeeper::queue::run_runner(arguments[1], {{arguments[0]}});
}
