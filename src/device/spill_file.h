// The file behind the disk node. It has no name, and its space is allocated in ranges of whole pages. It is
// read and written in parts, bypassing the page cache if the file system supports that (O_DIRECT).
//
// The file never has a name (O_TMPFILE, or it loses its name at creation), so no file is left behind
// however the process ends (I11). Space is reserved on the disk before it is allocated, so that a full
// disk shows early.
//
// The file uses no budgets, checksums or threads. Thread safety: all methods. No lock is held while bytes are
// read or written. Ownership: the file descriptor.
#pragma once

#include <sys/types.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/quiet_thread.h"
#include "base/status.h"
#include "base/thread_annotations.h"
#include "base/types.h"

namespace innkeeper {

// The system's calls, so that tests can make them fail. They behave as in the manual: -1 and errno; start
// throws std::system_error.
struct DiskCalls {
  ssize_t (*write)(int file, const void* data, size_t size, off_t offset);
  ssize_t (*read)(int file, void* data, size_t size, off_t offset);
  int (*reserve)(int file, int mode, off_t offset, off_t size);
  std::thread (*start)(std::function<void()> work) = [](std::function<void()> work) {
    return quiet_thread(std::move(work));
  };
  static DiskCalls of_the_system();
};

class SpillFile {
 public:
  static constexpr int64_t kPage = 4096;  // Unit of space, and of direct transfers, bytes.
  static constexpr int64_t round_to_page(int64_t size) { return (size + kPage - 1) / kPage * kPage; }
  static constexpr int64_t kPart = 4 << 20;  // Largest transfer of write() and read(), bytes.

  struct Options {
    std::string name;  // Name of the node, for messages.
    std::string directory;
    int64_t limit;       // Largest length of the file; a multiple of kPage.
    bool direct = true;  // True: try to bypass the page cache.
    DiskCalls calls = DiskCalls::of_the_system();
  };
  // Opens the file, and writes one page to verify that it can.
  static Result<std::unique_ptr<SpillFile>> open(Options options);
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  // A buffer of kPart bytes for transfers that are not aligned. Each transferring thread has its own.
  struct FreeBuffer {
    void operator()(char* data) const { std::free(data); }
  };
  using Buffer = std::unique_ptr<char, FreeBuffer>;
  static Buffer make_buffer();

  // Returns the offset of `length` bytes (a multiple of kPage): the best fitting free range, or else the
  // grown file's end.
  Result<int64_t> take(int64_t length);
  void give_back(int64_t offset, int64_t length);
  int64_t trim();  // Cuts off the unused end; returns the freed bytes.

  // Transfers at most kPart bytes at an offset that is a multiple of kPage, in a range from take(). Transfers
  // all or fails. `into` may be the buffer itself.
  Status write(const char* from, int64_t size, int64_t offset, char* buffer) const;
  Status read(char* into, int64_t size, int64_t offset, char* buffer) const;

  bool direct() const { return direct_; }
  const std::string& directory() const { return options_.directory; }

 private:
  SpillFile(Options options, int file, bool direct)
      : options_(std::move(options)), file_(file), direct_(direct) {}
  static Result<int> create_file(const Options& options);
  static Result<bool> probe(const Options& options, int file);
  Status grow(int64_t length) IK_REQUIRES(mutex_);
  Status failure(const char* verb, int64_t asked, int64_t done, int64_t offset, int error) const;

  const Options options_;
  const int file_;
  const bool direct_;
  Mutex mutex_;
  std::map<int64_t, int64_t> free_ IK_GUARDED_BY(mutex_);  // Free ranges, offset -> length, never adjacent.
  int64_t length_ IK_GUARDED_BY(mutex_) = 0;               // Length of the file, bytes.
};

}  // namespace innkeeper
