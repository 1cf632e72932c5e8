#include "queue/mend.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/lines.h"
#include "base/log.h"
#include "base/room.h"
#include "lease/live_file.h"
#include "lease/open_file.h"
#include "lease/record.h"
#include "queue/database.h"
#include "queue/salvage.h"
#include "queue/schema.h"

namespace innkeeper::queue {
namespace {

constexpr std::string_view kDamaged = "queue.db.damaged-";
constexpr std::string_view kUnreadable = "queue.db.unreadable-";

int64_t size_of(const std::string& path) {
  struct stat about {};
  return stat(path.c_str(), &about) == 0 ? int64_t{about.st_size} : 0;
}

// How many bytes the database should have by what its first page says; 0: that cannot be read.
int64_t length_by_header(const std::string& path) {
  constexpr std::string_view kMagic("SQLite format 3\0", 16);
  constexpr size_t kPageSizeAt = 16, kPagesAt = 28;
  std::array<unsigned char, 100> header{};
  const lease::OpenFile file(
      [&] { return open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC); });
  if (!file.valid() || pread(file.fd(), header.data(), header.size(), 0) != int64_t{header.size()}) return 0;
  if (std::memcmp(header.data(), kMagic.data(), kMagic.size()) != 0) return 0;
  const auto big_endian = [&](size_t at, size_t bytes) {
    int64_t value = 0;
    for (size_t i = 0; i < bytes; ++i) value = value << 8 | header[at + i];
    return value;
  };
  int64_t page = big_endian(kPageSizeAt, 2);
  if (page == 1) page = 65536;
  return page * big_endian(kPagesAt, 4);
}

// A file that was cut off gets back its length: pages of zeros are lost pages like others, while SQLite does
// not open a file that is shorter than it says, and throws away the log of one that is empty.
void restore_length(const std::string& path) {
  constexpr int64_t kMost = int64_t{1} << 36;
  constexpr int64_t kPage = 4096;
  const int64_t size = size_of(path);
  int64_t length = length_by_header(path);
  if (length > kMost) length = 0;
  if (length == 0 && size < kPage && size_of(path + "-wal") > 0) length = kPage;
  if (size < length && truncate(path.c_str(), length) != 0)
    log(LogLevel::warn, "cannot make " + path + " as long as it was: " + std::strerror(errno));
}

// The file and what of it still stands in its log, as they are.
Status keep_copy(const Folder& folder, const std::string& kept) {
  for (const char* end : {"", "-wal"}) {
    std::error_code error;
    const std::string from = folder.database() + end;
    if (!std::filesystem::exists(from, error)) continue;
    std::filesystem::copy_file(from, kept + end, std::filesystem::copy_options::overwrite_existing, error);
    if (error)
      return Status(Code::io_error, "cannot keep a copy of the damaged " + from + ": " + error.message() +
                                        room_left(folder.path()));
  }
  return Status::okay();
}

Result<Database> open_ours(const std::string& path) { return Database::open(path, Durable::power, kSchema); }

// One mending, under its lock.
class Mending {
 public:
  explicit Mending(const Folder& folder)
      : folder_(folder), seconds_(std::to_string(wall_clock_ns() / 1'000'000'000)) {}
  ~Mending() {
    remove(fresh_);
    if (!done_ && !kept_.empty()) remove(kept_);
  }

  Result<bool> run() {
    if (is_emptied(folder_) && size_of(folder_.database() + "-wal") == 0) return begin_anew();
    restore_length(folder_.database());
    Result<Database> live = open_ours(folder_.database());
    if (live.status().code() == Code::damaged && has_traces(folder_)) return begin_anew();
    if (!live.ok()) return live.status();
    const Result<std::string> damage = live.value().find_damage();
    if (!damage.ok()) return damage.status();
    if (damage.value().empty()) return false;
    // Of several lines, of which the first says "in database main", the last.
    return replace(live.value(), damage.value().substr(damage.value().rfind('\n') + 1));
  }

 private:
  static void remove(const std::string& database) {
    for (const char* end : {"", "-wal", "-shm", "-journal"}) unlink((database + end).c_str());
  }
  std::string name_kept(std::string_view kind) const {
    return folder_.path() + "/" + std::string(kind) + seconds_;
  }

  Result<bool> replace(Database& live, const std::string& what) {
    kept_ = name_kept(kDamaged);
    remove(fresh_);
    Result<Database> made = open_ours(fresh_);
    if (!made.ok()) return made.status();
    Result<int64_t> lost = int64_t{0};
    {
      Transaction nobody_writes(live);
      IK_RETURN_IF_ERROR(nobody_writes.status());
      IK_RETURN_IF_ERROR(keep_copy(folder_, kept_));
      lost = salvage(&live, made.value(), folder_);
      if (!lost.ok()) return lost.status();
    }
    IK_RETURN_IF_ERROR(live.replace_by(made.value()));
    done_ = true;
    log(LogLevel::warn, "the queue's database was damaged (" + lease::printable(what) + ") and is mended: " +
                            std::to_string(lost.value()) + " jobs are lost; " + kept_ + " is what it was");
    return true;
  }

  // Under the old one's name, so that who has that open sees that it has moved (Database::moved).
  Result<bool> begin_anew() {
    kept_ = name_kept(kUnreadable);
    remove(fresh_);
    {
      Result<Database> made = open_ours(fresh_);
      if (!made.ok()) return made.status();
      const Result<int64_t> lost = salvage(nullptr, made.value(), folder_);
      if (!lost.ok()) return lost.status();
    }
    IK_RETURN_IF_ERROR(keep_copy(folder_, kept_));
    const lease::OpenFile note(
        [&] { return open(kept_.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600); });
    if (!note.valid()) return Status(Code::io_error, "cannot make " + kept_ + ": " + std::strerror(errno));
    for (const char* end : {"-wal", "-shm"}) unlink((folder_.database() + end).c_str());
    if (rename(fresh_.c_str(), folder_.database().c_str()) != 0)
      return Status(Code::io_error, "cannot put a new " + folder_.database() +
                                        " in the place of the old: " + std::strerror(errno));
    done_ = true;
    log(LogLevel::warn,
        "the queue's database could not be read at all and is made anew from the jobs' output; " + kept_ +
            " is what it was");
    return true;
  }

  const Folder& folder_;
  const std::string seconds_;
  const std::string fresh_ = folder_.path() + "/queue.db.mended";
  std::string kept_;
  bool done_ = false;
};

}  // namespace

Result<bool> mend(const Folder& folder) {
  const lease::OpenFile lock([&] {
    return open((folder.path() + "/mend.lock").c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  });
  struct flock whole = lease::whole_file(F_WRLCK);
  if (!lock.valid() || fcntl(lock.fd(), F_OFD_SETLKW, &whole) != 0)
    return Status(Code::io_error, "cannot lock " + folder.path() + "/mend.lock");
  return Mending(folder).run();
}

bool is_emptied(const Folder& folder) { return size_of(folder.database()) == 0 && has_traces(folder); }

KeptDamage kept_damage(const Folder& folder) {
  KeptDamage newest;
  int64_t latest = -1;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path(), error)) {
    const std::string name = entry.path().filename();
    for (const std::string_view kind : {kDamaged, kUnreadable}) {
      int64_t seconds = 0;
      if (!name.starts_with(kind) || !read_number(std::string_view(name).substr(kind.size()), seconds))
        continue;
      if (seconds <= latest) continue;
      latest = seconds;
      newest = {.path = entry.path().string(), .unreadable = kind == kUnreadable};
    }
  }
  return newest;
}

}  // namespace innkeeper::queue
