#include "queue/mend.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/disk_space.h"
#include "base/lines.h"
#include "base/log.h"
#include "lease/live_file.h"
#include "lease/open_file.h"
#include "lease/record.h"
#include "queue/database.h"
#include "queue/raw_file.h"
#include "queue/salvage.h"
#include "queue/schema.h"

namespace innkeeper::queue {
namespace {

constexpr std::string_view kDamaged = "queue.db.damaged-";
constexpr std::string_view kUnreadable = "queue.db.unreadable-";
constexpr int64_t kPage = 4096;
// Longest plausible length; a greater one is damage as well.
constexpr int64_t kMostLength = int64_t{1} << 36;

int64_t size_of(const std::string& path) {
  struct stat about {};
  return lstat(path.c_str(), &about) == 0 ? int64_t{about.st_size} : 0;
}

// Restores the length of a truncated file. SQLite treats its pages of zeros as lost pages. It would not open
// a file that is shorter than its header says, and it would discard the log of an empty one.
Status lengthen(const std::string& path, int64_t length) {
  if (size_of(path) >= length) return Status::okay();
  if (RawFile(path, /*writable=*/true).lengthen(length)) return Status::okay();
  return Status(Code::io_error, "cannot make " + path + " as long as it was" + space_left(path));
}

// Copies a database and its log unchanged.
Status copy_database(const std::string& from, const std::string& to) {
  IK_RETURN_IF_ERROR(copy_file(from, to));
  return size_of(from + "-wal") > 0 ? copy_file(from + "-wal", to + "-wal") : Status::okay();
}

void remove_database(const std::string& path) {
  for (const char* end : {"", "-wal", "-shm", "-journal"}) unlink((path + end).c_str());
}

// Opens the lock file and waits until its lock of this type (F_RDLCK, F_WRLCK) is granted. The result is
// not valid if that is impossible.
lease::OpenFile locked(const QueueDirectory& directory, int type) {
  lease::OpenFile file([&] {
    return open((directory.path() + "/mend.lock").c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  });
  struct flock whole = lease::whole_file(static_cast<short>(type));
  int code = -1;
  if (file.valid()) do {
      code = fcntl(file.fd(), F_OFD_SETLKW, &whole);
    } while (code != 0 && errno == EINTR);
  return code == 0 ? std::move(file) : lease::OpenFile();
}

Result<Database> open_ours(const std::string& path) { return Database::open(path, Durable::power, kSchema); }

// One mending, done under the exclusive lock.
class Mending {
 public:
  explicit Mending(const QueueDirectory& directory)
      : directory_(directory), seconds_(std::to_string(wall_clock_ns() / 1'000'000'000)) {}
  ~Mending() {
    remove_database(fresh_);
    remove_database(part_);
    if (!done_ && !kept_.empty()) remove_database(kept_);
  }

  Result<bool> run() {
    const std::string path = directory_.database();
    const Header header = read_header(path, kSchema);
    const bool has_log = size_of(path + "-wal") > 0;
    switch (header.kind) {
      case Header::foreign: return not_ours(Code::io_error, path);
      case Header::unmarked:  // Opening completes an unmarked file, unless another program has made it.
        if (has_log) return not_ours(Code::io_error, path);
        return false;
      case Header::none:
        if (!has_log && !has_traces(directory_)) return false;
        return begin_anew();
      case Header::unreadable:
        // Without traces of jobs the file may be another program's.
        if (!has_log && !has_traces(directory_)) return not_ours(Code::io_error, path);
        return begin_anew();
      case Header::ours: break;
    }
    if (header.length <= kMostLength) IK_RETURN_IF_ERROR(lengthen(path, header.length));
    Result<Database> live = open_ours(path);
    if (live.status().code() == Code::damaged) return begin_anew();
    if (!live.ok()) return live.status();
    const Result<std::string> damage = live.value().find_damage();
    if (!damage.ok()) return damage.status();
    if (damage.value().empty()) return false;
    // Of several lines, whose first says "in database main", the last describes the damage.
    return replace(live.value(), damage.value().substr(damage.value().rfind('\n') + 1));
  }

 private:
  std::string name_kept(std::string_view kind) const {
    return directory_.path() + "/" + std::string(kind) + seconds_;
  }

  Result<bool> replace(Database& live, const std::string& what) {
    kept_ = name_kept(kDamaged);
    remove_database(fresh_);
    Result<Database> made = open_ours(fresh_);
    if (!made.ok()) return made.status();
    Result<int64_t> lost = int64_t{0};
    {
      Transaction nobody_writes(live);
      IK_RETURN_IF_ERROR(nobody_writes.status());
      IK_RETURN_IF_ERROR(copy_database(directory_.database(), kept_));
      lost = salvage(&live, made.value(), directory_);
      if (!lost.ok()) return lost.status();
    }
    IK_RETURN_IF_ERROR(live.replace_by(made.value()));
    done_ = true;
    log(LogLevel::warn, "the queue's database was damaged (" + lease::printable(what) + ") and is mended: " +
                            std::to_string(lost.value()) + " jobs are lost; " + kept_ + " is what it was");
    return true;
  }

  // Reads a copy of the old database and its log, because a process that has the old one open still
  // writes the log. The new database takes the old one's name. Those processes detect that their
  // file has moved (Database::moved).
  Result<bool> begin_anew() {
    kept_ = name_kept(kUnreadable);
    remove_database(fresh_);
    remove_database(part_);
    IK_RETURN_IF_ERROR(copy_database(directory_.database(), kept_));
    IK_RETURN_IF_ERROR(copy_database(kept_, part_));
    IK_RETURN_IF_ERROR(lengthen(part_, kPage));  // SQLite would discard the log of a shorter file.
    {
      Result<Database> made = open_ours(fresh_);
      if (!made.ok()) return made.status();
      Result<Database> old = Database::open_part(part_, kSchema);
      const Result<int64_t> lost = salvage(old.ok() ? &old.value() : nullptr, made.value(), directory_);
      if (!lost.ok()) return lost.status();
    }
    for (const char* end : {"-wal", "-shm"}) unlink((directory_.database() + end).c_str());
    if (rename(fresh_.c_str(), directory_.database().c_str()) != 0)
      return Status(Code::io_error, "cannot put a new " + directory_.database() +
                                        " in the place of the old: " + std::strerror(errno));
    done_ = true;
    log(LogLevel::warn,
        "the queue's database could not be read and is made again from its log and the jobs' output; " +
            kept_ + " is what it was");
    return true;
  }

  const QueueDirectory& directory_;
  const std::string seconds_;
  const std::string fresh_ = directory_.path() + "/queue.db.mended";
  // Copy of the database without its beginning.
  const std::string part_ = directory_.path() + "/queue.db.looked-at";
  std::string kept_;
  bool done_ = false;
};

}  // namespace

Result<bool> mend(const QueueDirectory& directory) {
  const lease::OpenFile lock = locked(directory, F_WRLCK);
  if (!lock.valid()) return Status(Code::io_error, "cannot lock " + directory.path() + "/mend.lock");
  return Mending(directory).run();
}

DatabaseStays::DatabaseStays(const QueueDirectory& directory) : lock_(locked(directory, F_RDLCK)) {}

KeptDamage kept_damage(const QueueDirectory& directory) {
  KeptDamage newest;
  int64_t latest = -1;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path(), error)) {
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
