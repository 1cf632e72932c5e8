// All engines of the machine that show themselves (publisher.h), of all users.
#pragma once

#include <cstdint>
#include <vector>

#include "board/record.h"
#include "lease/directory.h"

namespace innkeeper::board {

struct Shown {
  uint32_t uid = 0;  // the file's owner
  Record record;
};

// By PID. Files that are dead, false or unreadable are passed over; of one user at most so many are read.
inline constexpr int kMaxFilesPerUser = 256;
std::vector<Shown> read(const lease::Directory& directory);

// Removes this user's dead files. Needs no lock: a file appears under its name only when it is locked.
void reap(const lease::Directory& directory);

}  // namespace innkeeper::board
