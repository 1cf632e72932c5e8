// Reads and lengthens a database's file, which this process may have open as a database at the same time.
//
// SQLite locks databases by POSIX locks. close() of any descriptor of a file drops all locks that this
// process has on the file. Other processes then take the database for unused, and remove its log. So SQLite
// opens the file here, and delays the close until it drops no lock.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"

struct sqlite3_file;

namespace innkeeper::queue {

class RawFile {
 public:
  // A plain file; `writable`: made if it is missing. Check valid().
  explicit RawFile(const std::string& path, bool writable = false);
  ~RawFile();
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;

  bool valid() const { return file_ != nullptr; }
  int64_t size() const;  // 0: it cannot be told
  // How many bytes were read: fewer than `most` at the file's end.
  ssize_t read(int64_t offset, void* into, size_t most) const;
  // Zeros stand behind its end then. False: there is no room, say.
  bool lengthen(int64_t size);

 private:
  std::unique_ptr<std::byte[]> memory_;  // SQLite's for the file
  sqlite3_file* file_ = nullptr;
};

// All of it into a new file.
Status copy_file(const std::string& from, const std::string& to);

}  // namespace innkeeper::queue
