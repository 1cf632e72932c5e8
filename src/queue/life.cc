#include "queue/life.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "base/lines.h"
#include "lease/kill_point.h"
#include "lease/live_file.h"
#include "lease/process.h"

namespace innkeeper::queue {
namespace {

constexpr size_t kSlot = 128;

// "TEXT checksum\n", padded to a slot: whole, or not there.
bool write_slot(int fd, int slot, const std::string& text) {
  std::string bytes = text + " " + hex(fnv1a(text)) + "\n";
  bytes.resize(kSlot, ' ');
  return pwrite(fd, bytes.data(), kSlot, static_cast<off_t>(slot * kSlot)) == static_cast<ssize_t>(kSlot);
}

std::optional<std::string> read_slot(const char* bytes) {
  const std::string_view slot(bytes, kSlot);
  const size_t end = slot.find('\n');
  if (end == std::string_view::npos || end < 17) return std::nullopt;
  const std::string text(slot.substr(0, end - 17));
  if (slot.substr(end - 17, 17) != " " + hex(fnv1a(text))) return std::nullopt;
  return text;
}

Life read_life(int fd) {
  Life life;
  life.present = true;
  life.alive = lease::write_locked(fd).value_or(true);
  char bytes[2 * kSlot];
  const ssize_t length = pread(fd, bytes, sizeof bytes, 0);
  if (length < 0) life.alive = true;  // nobody can say
  if (length != static_cast<ssize_t>(sizeof bytes)) return life;
  if (const auto text = read_slot(bytes)) {
    Began began;
    if (std::sscanf(text->c_str(), "began %" SCNd64 " %" SCNu64, &began.supervisor.pid,
                    &began.supervisor.start_ticks) == 2)
      life.began = began;
  }
  if (const auto text = read_slot(bytes + kSlot)) {
    int how = 0;
    int64_t host = 0;
    Ending ending;
    if (std::sscanf(text->c_str(), "ended %d %d %" SCNd64 " %" SCNd64, &how, &ending.code, &ending.ended_ns,
                    &host) == 4 &&
        how >= 0 && how <= static_cast<int>(How::unknown)) {
      ending.how = static_cast<How>(how);
      ending.peak_host = Bytes(host);
      life.ended = ending;
    }
  }
  return life;
}

}  // namespace

Life look(const std::string& path) {
  const lease::OpenFile file([&] { return open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC); });
  if (file.valid()) return read_life(file.fd());
  Life life;
  life.present = life.alive = !lease::gone_or_barred(errno);
  return life;
}

Result<lease::OpenFile> begin_life(const std::string& path) {
  const auto failed = [&path] {
    return Status(Code::io_error, "cannot begin " + path + ": " + std::strerror(errno));
  };
  lease::OpenFile file(
      [&] { return open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600); });
  if (!file.valid()) return failed();
  lease::step("life made");
  if (!lease::lock_for_life(file.fd())) return failed();
  const std::string blank(2 * kSlot, ' ');
  if (pwrite(file.fd(), blank.data(), blank.size(), 0) != static_cast<ssize_t>(blank.size())) {
    const Status status = failed();
    unlink(path.c_str());
    return status;
  }
  lease::step("life locked");
  return file;
}

bool write_began(int fd, const Began& began) {
  char text[kSlot];
  std::snprintf(text, sizeof text, "began %" PRId64 " %" PRIu64, began.supervisor.pid,
                began.supervisor.start_ticks);
  return write_slot(fd, 0, text);
}

bool write_ended(int fd, const Ending& ending) {
  char text[kSlot];
  std::snprintf(text, sizeof text, "ended %d %d %" PRId64 " %" PRId64, static_cast<int>(ending.how),
                ending.code, ending.ended_ns, ending.peak_host.count());
  return write_slot(fd, 1, text) && fdatasync(fd) == 0;
}

bool signal_supervisor(const std::string& path, int signal) {
  const Life before = look(path);
  if (!before.began || before.ended) return false;
  const int process = static_cast<int>(syscall(SYS_pidfd_open, before.began->supervisor.pid, 0));
  if (process < 0 && errno != ENOSYS) return false;
  // It still holds its lock, and has not ended: so the process that was just opened is it, and not another
  // one that has its number. (Where only the job's own processes are left to hold the lock, the start time
  // tells.)
  const Life after = look(path);
  const auto line = lease::process_line(before.began->supervisor.pid);
  const bool same = after.alive && !after.ended && !line.empty() && line[0] == before.began->supervisor;
  if (process < 0) return same && kill(static_cast<pid_t>(before.began->supervisor.pid), signal) == 0;
  const bool sent = same && syscall(SYS_pidfd_send_signal, process, signal, nullptr, 0) == 0;
  close(process);
  return sent;
}

}  // namespace innkeeper::queue
