// Reads and lengthens a database's file that this process may have open as a database at the same time.
//
// SQLite locks databases by POSIX locks. close() of any descriptor of a file drops all locks that this
// process has on the file. Other processes would then take the database for unused and remove its log.
// Therefore SQLite opens the file here, and delays the close until it drops no lock.
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
  // Opens a plain file. `writable` creates it if it is missing. Check valid() afterwards.
  explicit RawFile(const std::string& path, bool writable = false);
  ~RawFile();
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;

  bool valid() const { return file_ != nullptr; }
  int64_t size() const;  // Size in bytes; 0: unknown.
  // Returns the number of bytes read, which is less than `most` at the file's end.
  ssize_t read(int64_t offset, void* into, size_t most) const;
  // Extends the file with zeros. Returns false on failure, for example on a full disk.
  bool lengthen(int64_t size);

 private:
  std::unique_ptr<std::byte[]> memory_;  // SQLite's memory for the file object.
  sqlite3_file* file_ = nullptr;
};

// Copies the whole file into a new one.
Status copy_file(const std::string& from, const std::string& to);

}  // namespace innkeeper::queue
