// The life file of one attempt of a job. Its kernel lock is held for as long as the attempt lives. Its
// supervisor records in it that the attempt began and how it ended.
//
//   created and locked by the runner, before any process of the job runs. The lock belongs to the open file,
//     so that the supervisor and the job's processes, which inherit it, keep it when the runner dies
//   began   written by the supervisor before it releases the job's program
//   left    written by the supervisor when the program has ended and other processes of the job have not
//   ended   written by the supervisor, and synced to the disk, before it releases the lock
//
// While it lives, the supervisor touches the file every two seconds: an attempt whose end was not
// recorded lived until its last touch.
//
// A reader therefore knows the attempt's state. If `ended` is written, the attempt is over and its end is
// known. Otherwise, if the file is locked, the attempt lives. Otherwise, if `began` is missing, the attempt
// never ran and never will. Otherwise it ran, and its end is unknown.
//
// The file has its 384 bytes from the beginning: a full disk cannot prevent the end from being written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "lease/gpu.h"
#include "lease/open_file.h"
#include "queue/store.h"

namespace innkeeper::queue {

struct Began {
  lease::ProcessKey supervisor;
};

struct Left {
  Ending program;
  int count = 0;  // Number of processes left when the program ended.
  int64_t first = 0;
  std::string name;  // Name of process `first`, printable.
  bool ended_by_us = false;
};

struct Life {
  bool present = false;  // True: the file exists.
  // True: the file is locked. Read before the other fields, so that an attempt that ends
  // meanwhile does not count as lost.
  bool alive = false;
  std::optional<Began> began;
  std::optional<Left> left;
  std::optional<Ending> ended;
};

// Reads a life file. An attempt whose file cannot be read, for want of a descriptor say, counts as alive, so
// that the runner leaves it alone.
Life look(const std::string& path);

// Creates the file, which must not exist, and locks it.
Result<lease::OpenFile> begin_life(const std::string& path);

// For the supervisor. On failure errno is set.
bool write_began(int fd, const Began& began);
bool write_left(int fd, const Left& left);
bool write_ended(int fd, const Ending& ending);

// Sends a signal to the supervisor of a living attempt, never to another process that has reused its number.
// Returns false if the supervisor is gone or has not begun.
bool signal_supervisor(const std::string& path, int signal);

}  // namespace innkeeper::queue
