// A directory of a test's own.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace innkeeper::test {

// The constructor makes it under a name that no other process uses. The destructor removes it with its
// contents, but for a child of fork() that destroys its copy.
class TemporaryDirectory {
 public:
  // `memory` is a file system in memory where the machine has one, since many tests wait for the disk at
  // each step. INNKEEPER_TEST_ON_DISK, if it is set, asks for the disk in any case.
  enum class Medium { memory, disk };

  // `prefix`: the beginning of the directory's name.
  explicit TemporaryDirectory(const std::string& prefix, Medium medium = Medium::memory) {
    const bool in_memory = medium == Medium::memory && std::getenv("INNKEEPER_TEST_ON_DISK") == nullptr &&
                           access("/dev/shm", W_OK) == 0;
    const std::filesystem::path parent = in_memory ? "/dev/shm" : std::filesystem::temp_directory_path();
    std::string path = (parent / (prefix + ".XXXXXX")).string();
    if (mkdtemp(path.data()) == nullptr) std::abort();
    path_ = path;
  }
  ~TemporaryDirectory() {
    std::error_code error;
    if (getpid() == owner_) std::filesystem::remove_all(path_, error);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Lets other users enter it and make files in it.
  void open_to_all() const { std::filesystem::permissions(path_, std::filesystem::perms::all); }

 private:
  const pid_t owner_ = getpid();
  std::filesystem::path path_;
};

}  // namespace innkeeper::test
