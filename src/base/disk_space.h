// Free space of a disk, for an error that reports too little of it. It is the disk's own report: some free
// bytes may be reserved for other users.
#pragma once

#include <string>

namespace innkeeper {

// Returns " (0 B free of 1.0 MiB)" for the file system of `path`, or " (0 of 4096 files free)" if it lacks
// files. Empty if the file system does not report its free space.
std::string space_left(const std::string& path);

}  // namespace innkeeper
