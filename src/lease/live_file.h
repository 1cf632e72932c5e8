// Files that live as long as their writer holds a kernel lock on them: how they are read and locked.
#pragma once

#include <fcntl.h>
#include <sys/random.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>

#include "base/lines.h"

namespace innkeeper::lease {

// Nothing that another user put there may stop a reader: not a link, a pipe, or a file with a file lease
// (F_SETLEASE).
inline constexpr int kReadFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

inline struct flock whole_file(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

// A name that nobody else has and nobody can guess. None: errno says why.
inline std::optional<std::string> new_id() {
  uint64_t random = 0;
  if (getrandom(&random, sizeof random, 0) != sizeof random) return std::nullopt;
  return hex(random);
}

// Makes it alive, for as long as this open file description is. False: somebody else's has it, or errno says.
inline bool lock_for_life(int fd) {
  struct flock life = whole_file(F_WRLCK);
  return fcntl(fd, F_OFD_SETLK, &life) == 0;
}

// Does somebody hold a write lock? A question for a read lock: other read locks do not answer it. None:
// nobody can say, and errno says why; it is not dead.
inline std::optional<bool> write_locked(int fd) {
  struct flock lock = whole_file(F_RDLCK);
  if (fcntl(fd, F_OFD_GETLK, &lock) != 0) return std::nullopt;
  return lock.l_type == F_WRLCK;
}

// Is this what reading a file fails with that is gone, or that its owner made so that nobody can read it (a
// link, a socket, no rights, F_SETLEASE)? Such a file may be skipped. After all else (no descriptor, no
// memory, the disk) it may well be alive.
inline bool gone_or_barred(int error) {
  return error == ENOENT || error == ELOOP || error == EACCES || error == EPERM || error == EWOULDBLOCK ||
         error == ENXIO || error == ENODEV;
}

}  // namespace innkeeper::lease
