#include "queue/life.h"

#include <fcntl.h>
#include <sys/stat.h>
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
constexpr int kBegan = 0, kEnded = 1, kLeft = 2, kSlots = 3;
constexpr size_t kName = 24;  // Longest process name that is stored; the kernel's names are shorter.

// Writes "TEXT checksum\n", padded to a slot, so that a reader sees the whole text or none.
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

// Converts a stored number, which a damaged file may have changed.
std::optional<How> how_in(int number) {
  if (number < 0 || number > static_cast<int>(How::unknown)) return std::nullopt;
  return static_cast<How>(number);
}

std::optional<Began> read_began(const std::string& text) {
  Began began;
  if (std::sscanf(text.c_str(), "began %" SCNd64 " %" SCNu64, &began.supervisor.pid,
                  &began.supervisor.start_ticks) != 2)
    return std::nullopt;
  return began;
}

std::optional<Left> read_left(const std::string& text) {
  Left left;
  int how = 0, ours = 0, name = 0;
  if (std::sscanf(text.c_str(), "left %d %d %d %d %" SCNd64 " %n", &how, &left.program.code, &ours,
                  &left.count, &left.first, &name) != 5 ||
      !how_in(how) || name == 0)
    return std::nullopt;
  left.program.how = *how_in(how);
  left.ended_by_us = ours != 0;
  left.name = lease::printable(text.substr(static_cast<size_t>(name)));
  return left;
}

std::optional<Ending> read_ended(const std::string& text) {
  int how = 0;
  int64_t host = 0;
  Ending ending;
  if (std::sscanf(text.c_str(), "ended %d %d %" SCNd64 " %" SCNd64, &how, &ending.code, &ending.ended_ns,
                  &host) != 4 ||
      !how_in(how))
    return std::nullopt;
  ending.how = *how_in(how);
  ending.peak_host = Bytes(host);
  return ending;
}

Life read_life(int fd) {
  Life life;
  life.present = true;
  life.alive = lease::write_locked(fd).value_or(true);
  char bytes[kSlots * kSlot];
  const ssize_t length = pread(fd, bytes, sizeof bytes, 0);
  if (length < 0) life.alive = true;  // The lock state is unknown, so the attempt counts as alive.
  if (length != static_cast<ssize_t>(sizeof bytes)) return life;
  if (const auto text = read_slot(bytes + kBegan * kSlot)) life.began = read_began(*text);
  if (const auto text = read_slot(bytes + kLeft * kSlot)) life.left = read_left(*text);
  if (const auto text = read_slot(bytes + kEnded * kSlot)) life.ended = read_ended(*text);
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
  const std::string blank(kSlots * kSlot, ' ');
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
  return write_slot(fd, kBegan, text);
}

bool write_left(int fd, const Left& left) {
  char text[kSlot];
  std::snprintf(text, sizeof text, "left %d %d %d %d %" PRId64 " ", static_cast<int>(left.program.how),
                left.program.code, left.ended_by_us ? 1 : 0, left.count, left.first);
  return write_slot(fd, kLeft, text + left.name.substr(0, kName));
}

bool write_ended(int fd, const Ending& ending) {
  char text[kSlot];
  std::snprintf(text, sizeof text, "ended %d %d %" PRId64 " %" PRId64, static_cast<int>(ending.how),
                ending.code, ending.ended_ns, ending.peak_host.count());
  return write_slot(fd, kEnded, text) && fdatasync(fd) == 0;
}

bool signal_supervisor(const std::string& path, int signal) {
  // If only the job's own processes still hold the lock, the supervisor's start time shows that it is gone.
  const Life life = look(path);
  return life.alive && life.began && !life.ended && lease::signal_process(life.began->supervisor, signal);
}

}  // namespace innkeeper::queue
