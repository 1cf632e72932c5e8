#include "cli/grant/holder.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/descriptors.h"
#include "cli/command.h"
#include "keep/light.h"
#include "keep/restore.h"
#include "lease/request.h"
#include "lease/watch.h"

namespace innkeeper::cli {
namespace {

volatile std::sig_atomic_t caught = 0;

// Runs in the child: reports through `ready` whether it holds the lease, and never returns.
[[noreturn]] void keep(lease::Arbiter& arbiter, lease::Lease& inherited, int ready) {
  setsid();
  catch_signals();
  const bool own = arbiter.take_over(inherited).ok();
  open_nowhere();
  // Closes the caller's other descriptors; otherwise its locks and pipes would stay held as
  // long as the lease.
  keep::let_go({ready, inherited.descriptor(), arbiter.directory().fd()});
  const char good = own ? '+' : '-';
  const bool told = write(ready, &good, 1) == 1;
  close(ready);
  if (!own || !told) _exit(1);
  hold_here(std::move(inherited), arbiter);
  _exit(0);
}

}  // namespace

void catch_signals() {
  struct sigaction action {};
  action.sa_handler = [](int signal) { caught = signal; };
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
}

int hold_here(lease::Lease lease, lease::Arbiter& arbiter) {
  lease::Watch watch(arbiter.directory());
  // The pause also bounds the delay in noticing an expiry, or a signal that arrives just before the waiting.
  keep::Restore restore;
  while (caught == 0 && (lease.intact() || lease.lost())) {
    if (restore.look(lease) == keep::Restore::Found::lost)
      note("the lease " + lease.id() +
           " was removed by a logout, and could not be made again yet: " + restore.why().message());
    watch.wait(std::chrono::milliseconds(200));
  }
  lease.release();
  return caught;
}

pid_t hold_in_background(lease::Arbiter& arbiter, lease::Lease lease) {
  int ends[2];
  if (!lease.share_with_children().ok() || pipe2(ends, O_CLOEXEC) != 0)
    fail(kInternal, std::string("cannot hold the lease in the background: ") + std::strerror(errno));
  const pid_t child = fork();
  if (child < 0) fail(kInternal, std::string("cannot start a process: ") + std::strerror(errno));
  if (child == 0) {
    close(ends[0]);
    keep(arbiter, lease, ends[1]);
  }
  close(ends[1]);
  char answer = '-';
  ssize_t length = 0;
  do length = read(ends[0], &answer, 1);
  while (length < 0 && errno == EINTR);
  close(ends[0]);
  if (length != 1 || answer != '+') {
    waitpid(child, nullptr, 0);
    fail(kInternal, "the process that was to hold the lease did not start");
  }
  lease.leave();
  return child;
}

std::chrono::milliseconds duration(const std::string& text, const char* option) {
  const Result<std::chrono::milliseconds> parsed = lease::parse_duration(text);
  if (!parsed.ok()) fail(kUsage, std::string(option) + ": " + parsed.status().message());
  if (parsed.value() < std::chrono::seconds(1))
    fail(kUsage, std::string(option) + " " + text + ": at least 1s");
  return parsed.value();
}

}  // namespace innkeeper::cli
