// The life of one attempt of a job: a file whose kernel lock is held for as long as the attempt lives, and in
// which its supervisor writes down that it began and how it ended.
//
//   made and locked by the runner, before anything runs; the lock is on the open file, so that the supervisor
//     and the job's processes, which inherit it, keep it when the runner dies
//   began   written by the supervisor before the job's program is let go
//   left    written by it when the program has ended and others of the job's processes have not
//   ended   written by the supervisor, and on the disk, before it lets go
//
// While it lives the supervisor touches it every two seconds: what nobody saw end lived until then.
//
// So whoever reads it knows: ended -> it is over, and how. Else locked -> it lives. Else not begun -> it
// never ran, and nobody will run it. Else it ran and nobody knows how it ended.
//
// Its 384 bytes are there from the beginning: a full disk cannot keep the ending from being written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "lease/card.h"
#include "lease/open_file.h"
#include "queue/store.h"

namespace innkeeper::queue {

struct Began {
  lease::ProcessKey supervisor;
};

struct Left {
  Ending program;
  int count = 0;  // processes, when the program ended
  int64_t first = 0;
  std::string name;  // of the first; printable
  bool ended_by_us = false;
};

struct Life {
  bool present = false;  // there is such a file
  bool alive = false;    // locked. Read before the rest, so that one who ends meanwhile is not taken for lost
  std::optional<Began> began;
  std::optional<Left> left;
  std::optional<Ending> ended;
};

// What cannot be looked at, for want of a descriptor say, counts as alive: nothing is done about it.
Life look(const std::string& path);

// Makes the file, which must not be there, and locks it.
Result<lease::OpenFile> begin_life(const std::string& path);

// For the supervisor. A failure is errno's.
bool write_began(int fd, const Began& began);
bool write_left(int fd, const Left& left);
bool write_ended(int fd, const Ending& ending);

// Sends a signal to the supervisor of a living attempt: never to another process that has its number by now.
// False: it is not there, or not begun yet.
bool signal_supervisor(const std::string& path, int signal);

}  // namespace innkeeper::queue
