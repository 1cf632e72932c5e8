#include "queue/raw_file.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/disk_space.h"

namespace innkeeper::queue {

RawFile::RawFile(const std::string& path, bool writable) {
  struct stat about {};
  const bool there = lstat(path.c_str(), &about) == 0;
  if (there ? !S_ISREG(about.st_mode) : !writable) return;
  sqlite3_vfs* const system = sqlite3_vfs_find(nullptr);
  if (system == nullptr) return;
  memory_ = std::make_unique<std::byte[]>(static_cast<size_t>(system->szOsFile));
  auto* const file = reinterpret_cast<sqlite3_file*>(memory_.get());
  const int access = writable ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
  const int flags = access | SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_NOFOLLOW;
  int given = 0;
  if (system->xOpen(system, path.c_str(), file, flags, &given) == SQLITE_OK) file_ = file;
}

RawFile::~RawFile() {
  if (file_ != nullptr) file_->pMethods->xClose(file_);
}

int64_t RawFile::size() const {
  sqlite3_int64 bytes = 0;
  return file_ != nullptr && file_->pMethods->xFileSize(file_, &bytes) == SQLITE_OK ? bytes : 0;
}

ssize_t RawFile::read(int64_t offset, void* into, size_t most) const {
  const int64_t count = std::min(static_cast<int64_t>(most), size() - offset);
  if (count <= 0) return 0;
  const int code = file_->pMethods->xRead(file_, into, static_cast<int>(count), offset);
  return code == SQLITE_OK ? static_cast<ssize_t>(count) : -1;
}

bool RawFile::lengthen(int64_t length) {
  const char zero = 0;
  return valid() && (size() >= length || file_->pMethods->xWrite(file_, &zero, 1, length - 1) == SQLITE_OK);
}

Status copy_file(const std::string& from, const std::string& to) {
  const auto failed = [&](int error) {
    return Status(Code::io_error,
                  "cannot keep a copy of the damaged " + from + ": " + std::strerror(error) + space_left(to));
  };
  const int out = open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (out < 0) return failed(errno);
  const RawFile in(from);
  std::array<char, 65536> part;
  ssize_t length = 0;
  int error = 0;
  for (int64_t at = 0; error == 0 && in.valid() && (length = in.read(at, part.data(), part.size())) != 0;
       at += length) {
    if (length < 0)
      error = EIO;
    else if (const ssize_t written = write(out, part.data(), static_cast<size_t>(length)); written != length)
      error = written < 0 ? errno : ENOSPC;
  }
  close(out);
  return error == 0 ? Status::okay() : failed(error);
}

}  // namespace innkeeper::queue
