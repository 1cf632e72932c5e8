// Reads all published engines of the machine (publisher.h), of all users.
#pragma once

#include <cstdint>
#include <vector>

#include "board/record.h"
#include "lease/directory.h"

namespace innkeeper::board {

struct Shown {
  uint32_t uid = 0;  // The file's owner.
  Record record;
};

// Limit on the files of one user that are read. Engines are sorted by PID; dead, invalid or unreadable
// files are skipped.
inline constexpr int kMaxFilesPerUser = 256;
std::vector<Shown> read(const lease::Directory& directory);

// Removes this user's dead files. Needs no lock: a file gets its name only after it is locked.
void reap(const lease::Directory& directory);

}  // namespace innkeeper::board
