// Functions to read and lock files that live as long as their writer holds a kernel lock on them.
#pragma once

#include <fcntl.h>
#include <sys/random.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>

#include "base/lines.h"

namespace innkeeper::lease {

// Flags with which another user's file cannot stop a reader: it may be a link, a pipe, or a file with a file
// lease (F_SETLEASE).
inline constexpr int kReadFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

inline struct flock whole_file(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

// Returns a unique name that no other user can guess. None: errno gives the reason.
inline std::optional<std::string> new_id() {
  uint64_t random = 0;
  if (getrandom(&random, sizeof random, 0) != sizeof random) return std::nullopt;
  return hex(random);
}

// Marks the file as alive until this open file description is closed. False: another process holds the lock,
// or errno gives the reason.
inline bool lock_for_life(int fd) {
  struct flock life = whole_file(F_WRLCK);
  return fcntl(fd, F_OFD_SETLK, &life) == 0;
}

// Returns whether a process holds a write lock. It queries for a read lock, so that other read locks do not
// matter. None: unknown, and errno gives the reason; the file is not dead.
inline std::optional<bool> write_locked(int fd) {
  struct flock lock = whole_file(F_RDLCK);
  if (fcntl(fd, F_OFD_GETLK, &lock) != 0) return std::nullopt;
  return lock.l_type == F_WRLCK;
}

// Returns whether the error of reading a file shows that it is gone or made unreadable by its owner (a link,
// a socket, no rights, F_SETLEASE). Such a file may be skipped. After any other error (no descriptor, no
// memory, the disk) it may well be alive.
inline bool gone_or_barred(int error) {
  return error == ENOENT || error == ELOOP || error == EACCES || error == EPERM || error == EWOULDBLOCK ||
         error == ENXIO || error == ENODEV;
}

}  // namespace innkeeper::lease
