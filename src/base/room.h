// What is left on a disk, for an error that says there is too little. It is what the disk says of itself:
// free bytes may be left that are not ours to take.
#pragma once

#include <string>

namespace innkeeper {

// " (0 B free of 1.0 MiB)" of the file system of `path`; " (0 of 4096 files free)" where files are what it
// lacks; empty where it does not say.
std::string room_left(const std::string& path);

}  // namespace innkeeper
