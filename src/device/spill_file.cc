#include "device/spill_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/log.h"

namespace innkeeper {
namespace {

// Step in which the file grows, bytes, so that reserving space is rare.
constexpr int64_t kGrowStep = 64 << 20;

}  // namespace

DiskCalls DiskCalls::of_the_system() { return {.write = ::pwrite, .read = ::pread, .reserve = ::fallocate}; }

Result<int> SpillFile::create_file(const Options& options) {
  int file = ::open(options.directory.c_str(), O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
  // The file system does not support O_TMPFILE.
  if (file < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
    std::string named = options.directory + "/innkeeper-spill-XXXXXX";
    file = ::mkostemp(named.data(), O_CLOEXEC);
    if (file >= 0 && ::unlink(named.c_str()) != 0) {
      const int error = errno;
      ::close(file);
      errno = error;
      file = -1;
    }
  }
  if (file >= 0) return file;
  return Status(errno == ENOSPC ? Code::out_of_memory : Code::io_error,
                options.name + ": no spill file in \"" + options.directory + "\": " + std::strerror(errno));
}

// Returns whether direct transfers work; fails if no transfers do.
Result<bool> SpillFile::probe(const Options& options, int file) {
  const auto page = make_buffer();
  std::memset(page.get(), 0, kPage);
  const int flags = ::fcntl(file, F_GETFL);
  if (options.direct && ::fcntl(file, F_SETFL, flags | O_DIRECT) == 0) {
    if (options.calls.write(file, page.get(), kPage, 0) == kPage) return true;
    if (errno != EINVAL) log(LogLevel::warn, options.name + ": direct writes fail: " + std::strerror(errno));
    ::fcntl(file, F_SETFL, flags);
  }
  if (options.calls.write(file, page.get(), kPage, 0) == kPage) return false;
  return Status(Code::io_error, options.name + ": the spill file in \"" + options.directory +
                                    "\" takes no data: " + std::strerror(errno));
}

Result<std::unique_ptr<SpillFile>> SpillFile::open(Options options) {
  const Result<int> file = create_file(options);
  if (!file.ok()) return file.status();
  const Result<bool> direct = probe(options, file.value());
  if (!direct.ok()) {
    ::close(file.value());
    return direct.status();
  }
  return std::unique_ptr<SpillFile>(new SpillFile(std::move(options), file.value(), direct.value()));
}

SpillFile::~SpillFile() { ::close(file_); }

SpillFile::Buffer SpillFile::make_buffer() {
  auto* data = static_cast<char*>(std::aligned_alloc(kPage, kPart));
  IK_CHECK(data != nullptr, "no memory for a disk's transfer buffer");
  return Buffer(data);
}

Result<int64_t> SpillFile::take(int64_t length) {
  MutexLock lock(mutex_);
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second >= length && (best == free_.end() || it->second < best->second)) best = it;
  }
  if (best == free_.end()) {
    IK_RETURN_IF_ERROR(grow(length));
    best = std::prev(free_.end());
  }
  const auto [offset, found] = *best;
  free_.erase(best);
  if (found > length) free_[offset + length] = found - length;
  return offset;
}

// Extends the file's last free range to at least `length` bytes at the end of the file.
Status SpillFile::grow(int64_t length) {
  int64_t start = length_;
  if (!free_.empty()) {
    const auto& [offset, size] = *free_.rbegin();
    if (offset + size == length_) start = offset;
  }
  const int64_t needed = start + length;
  struct rlimit most {};
  const bool too_long = ::getrlimit(RLIMIT_FSIZE, &most) == 0 && static_cast<rlim_t>(needed) > most.rlim_cur;
  if (needed > options_.limit ||
      too_long) {  // The kernel answers a write beyond the limit on file sizes with a deadly signal.
    return Status(Code::out_of_memory,
                  options_.name + ": asked " + to_string(Bytes(length)) + ", the file in \"" +
                      options_.directory + "\" is " + to_string(Bytes(length_)) + " long and may be " +
                      to_string(Bytes(too_long ? static_cast<int64_t>(most.rlim_cur) : options_.limit)) +
                      (too_long ? " (ulimit -f)" : " (it is fragmented)"));
  }
  int64_t target =
      std::min({std::max(needed, length_ + kGrowStep), options_.limit,
                static_cast<int64_t>(std::min<rlim_t>(most.rlim_cur, INT64_MAX)) / kPage * kPage});
  int error = 0;
  for (;;) {
    if (options_.calls.reserve(file_, 0, length_, target - length_) == 0) break;
    error = errno;
    if (error == EINTR) continue;
    if (error == EOPNOTSUPP) break;  // The file system has no reservations: a full disk shows at the write.
    if (target == needed) {
      return Status(error == ENOSPC || error == EDQUOT ? Code::out_of_memory : Code::io_error,
                    options_.name + ": asked " + to_string(Bytes(length)) + ", \"" + options_.directory +
                        "\" cannot hold more than the " + to_string(Bytes(length_)) +
                        " it has: " + std::strerror(error));
    }
    target = needed;
  }
  free_[start] = target - start;
  length_ = target;
  return Status::okay();
}

void SpillFile::give_back(int64_t offset, int64_t length) {
  MutexLock lock(mutex_);
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + length == next->first) {
    length += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += length;
      return;
    }
  }
  free_[offset] = length;
}

int64_t SpillFile::trim() {
  MutexLock lock(mutex_);
  if (free_.empty()) return 0;
  const auto last = std::prev(free_.end());
  const auto [offset, size] = *last;
  if (offset + size != length_ || ::ftruncate(file_, offset) != 0) return 0;
  free_.erase(last);
  length_ = offset;
  return size;
}

Status SpillFile::write(const char* from, int64_t size, int64_t offset, char* buffer) const {
  int64_t length = size;
  if (direct_ && (size % kPage != 0 || reinterpret_cast<uintptr_t>(from) % kPage != 0)) {
    length = round_to_page(size);  // The end stays inside the range, which has whole pages.
    std::memcpy(buffer, from, static_cast<size_t>(size));
    std::memset(buffer + size, 0, static_cast<size_t>(length - size));
    from = buffer;
  }
  for (int64_t done = 0; done < length;) {
    const ssize_t now =
        options_.calls.write(file_, from + done, static_cast<size_t>(length - done), offset + done);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) return failure("write", length, done, offset, now < 0 ? errno : 0);
    done += now;
  }
  return Status::okay();
}

Status SpillFile::read(char* into, int64_t size, int64_t offset, char* buffer) const {
  const bool aligned = size % kPage == 0 && reinterpret_cast<uintptr_t>(into) % kPage == 0;
  char* const target = direct_ && !aligned ? buffer : into;
  const int64_t length = direct_ ? round_to_page(size) : size;
  for (int64_t done = 0; done < length;) {
    const ssize_t now =
        options_.calls.read(file_, target + done, static_cast<size_t>(length - done), offset + done);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) return failure("read", length, done, offset, now < 0 ? errno : 0);
    done += now;
  }
  if (target != into) std::memcpy(into, target, static_cast<size_t>(size));
  return Status::okay();
}

Status SpillFile::failure(const char* verb, int64_t asked, int64_t done, int64_t offset, int error) const {
  return Status(Code::io_error, options_.name + ": " + verb + " of " + std::to_string(asked) +
                                    " bytes at offset " + std::to_string(offset) + " of the file in \"" +
                                    options_.directory + "\" stopped after " + std::to_string(done) + ": " +
                                    (error == 0 ? "no more bytes" : std::strerror(error)));
}

}  // namespace innkeeper
