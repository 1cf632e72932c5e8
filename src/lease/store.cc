#include "lease/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "base/clock.h"
#include "base/disk_space.h"
#include "lease/kill_point.h"
#include "lease/live_file.h"
#include "lease/logout.h"
#include "lease/process.h"

namespace innkeeper::lease {
namespace {

constexpr int kMakeFlags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;

// Mode of a file that is removed to end its lease. It leaves all readers their access.
constexpr mode_t kEnded = 0744;

// Reads both slots. None: errno gives the reason.
std::optional<std::string> read_slots(int fd) {
  std::string text(2 * kSlotBytes, '\0');
  const ssize_t length = pread(fd, text.data(), text.size(), 0);
  if (length < 0) return std::nullopt;
  text.resize(static_cast<size_t>(length));
  return text;
}

// A touched file's modification time is the machine's clock plus this offset, beyond any time of a wall
// clock. A time below it is a wall time: the file was just created, or a version of the program without the
// offset touched it.
constexpr int64_t kTouched = 4'102'444'800;  // In seconds: 2100-01-01.

int64_t touched_ns(const timespec& time) {
  const int64_t ns = int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  return time.tv_sec >= kTouched ? ns - kTouched * 1'000'000'000 : ns - wall_ahead_ns();
}

Status failed(const Directory& directory, const std::string& what, int error) {
  return Status(Code::io_error, "cannot " + what + " in the lease directory " + directory.path() + ": " +
                                    std::strerror(error) +
                                    (error == ENOSPC ? space_left(directory.path()) : ""));
}

// Reserves disk space, so that no later change of the record fails for lack of it. A record grows by its
// holder's name and numbers.
bool reserve(int fd, size_t slot) {
  const size_t most = kSlotBytes + std::min(kSlotBytes, slot + 2 * kMaxTextLength);
  rlimit limit{};  // The kernel ends a process that exceeds this limit.
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < most) return true;
  return fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(most)) == 0 || errno == EOPNOTSUPP ||
         errno == ENOSYS;
}

// Returns whether the name leads to this open file.
bool leads_to(const Directory& directory, const std::string& name, int fd) {
  struct stat ours {
  }, there{};
  return fstat(fd, &ours) == 0 && fstatat(directory.fd(), name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 &&
         ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
}

class Reader {
 public:
  Reader(const Directory& directory, const GlobalLock* lock, bool crowded)
      : directory_(directory), lock_(lock), crowded_(crowded) {}

  // Examines one file. A failure says nothing about the lease: a caller that ignored it would promise the
  // lease's bytes twice.
  Status visit(const char* name) {
    const bool draft = name[0] == 't';
    if (crowded_ && is_one_too_many(name)) return Status::okay();
    const int fd = openat(directory_.fd(), name, kReadFlags);
    const bool seen = fd >= 0 && look(fd, name, draft);
    const int error = errno;
    if (fd >= 0) ::close(fd);
    if (seen || gone_or_barred(error)) return Status::okay();
    return failed(directory_, "read " + std::string(name), error);
  }
  Scan take() {
    std::sort(result_.live.begin(), result_.live.end(),
              [](const Entry& a, const Entry& b) { return a.id < b.id; });
    return std::move(result_);
  }

 private:
  // Returns whether the file's user has more files than are read. It queries the name, because opening each
  // file first would take ten times as long under the global lock.
  bool is_one_too_many(const char* name) const {
    struct stat about {};
    if (fstatat(directory_.fd(), name, &about, AT_SYMLINK_NOFOLLOW) != 0 || about.st_uid == user_)
      return false;
    const auto files = files_.find(about.st_uid);
    return !S_ISREG(about.st_mode) || (files != files_.end() && files->second >= most_of(about.st_uid));
  }
  // In a user namespace all unmapped users appear as one.
  int most_of(uid_t user) const { return user == unmapped_ ? 64 * kMaxFilesPerUser : kMaxFilesPerUser; }

  // Returns false if the file cannot be read; errno gives the reason.
  bool look(int fd, const char* name, bool draft) {
    struct stat about {};
    if (fstat(fd, &about) != 0) return false;
    if (!S_ISREG(about.st_mode)) return true;
    // A file under two names counts once. It is not skipped, because then a link would make it disappear.
    if (about.st_nlink > 1 && !linked_.insert(about.st_ino).second) return true;
    const bool own = about.st_uid == user_;
    if (++files_[about.st_uid] > most_of(about.st_uid) && !own) return true;
    const bool may = own || user_ == 0 || directory_.owner() == user_;
    const std::optional<bool> alive = write_locked(fd);
    if (!alive) return false;
    if (!*alive) return reap(name, may);
    if (draft) return true;  // A draft is visible only to callers without the lock.
    if (own) ++result_.own_live;
    const std::optional<std::string> slots = read_slots(fd);
    if (!slots) return false;
    std::optional<Record> record = decode(*slots);
    if (!record) return true;  // An invalid record claims no bytes.
    if (record->expired(now_ns_)) return reap(name, may);
    record->uid = about.st_uid;
    // The owners of a part and its whole cannot be compared here, so the part counts in full.
    if (about.st_uid == unmapped_) record->inside.clear();
    result_.live.push_back({name + 1, *std::move(record), touched_ns(about.st_mtim)});
    return true;
  }

  // Removes a dead or expired file. Only under the lock: without it a draft may not be locked yet.
  bool reap(const char* name, bool may) {
    ++result_.dead;
    if (!may || lock_ == nullptr || !lock_->exclusive()) return true;
    step("before reaping");
    if (unlinkat(directory_.fd(), name, 0) == 0) step("reaped");
    return true;
  }

  const Directory& directory_;
  const GlobalLock* const lock_;
  const bool crowded_;  // True: there are more files than one user may have.
  const uid_t user_ = geteuid();
  const std::optional<uid_t> unmapped_ = directory_.unmapped_user();
  const int64_t now_ns_ = machine_clock_ns();
  Scan result_;
  std::unordered_map<uid_t, int> files_;
  std::unordered_set<ino_t> linked_;
};

}  // namespace

Result<Scan> scan(const Directory& directory, const GlobalLock* lock) {
  const int fd = openat(directory.fd(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* names = fd < 0 ? nullptr : fdopendir(fd);
  if (names == nullptr) {
    const int error = errno;
    if (fd >= 0) ::close(fd);
    return failed(directory, "list the files", error);
  }
  std::vector<std::array<char, 18>> files;  // Names: "l", or "t" of a draft, and an id.
  errno = 0;                                // errno stays 0 at the end of the names.
  while (const dirent* entry = readdir(names)) {
    const char* const name = entry->d_name;
    if ((name[0] == 'l' || name[0] == 't') && valid_id(name + 1))
      std::copy_n(name, 18, files.emplace_back().data());
    errno = 0;
  }
  const int error = errno;
  closedir(names);
  if (error != 0) return failed(directory, "list the files", error);
  Reader reader(directory, lock, files.size() > kMaxFilesPerUser);
  for (const auto& name : files) IK_RETURN_IF_ERROR(reader.visit(name.data()));
  step("scanned");
  return reader.take();
}

std::optional<Entry> read_entry(int fd) {
  struct stat about {};
  if (fstat(fd, &about) != 0 || about.st_nlink == 0 || !write_locked(fd).value_or(false)) return std::nullopt;
  const std::optional<std::string> slots = read_slots(fd);
  std::optional<Record> record = slots ? decode(*slots) : std::nullopt;
  if (!record) return std::nullopt;
  record->uid = about.st_uid;
  return Entry{"", *std::move(record), touched_ns(about.st_mtim)};
}

bool LeaseFile::named() const { return file.valid() && leads_to(*directory, name(), file.fd()); }

bool LeaseFile::lost() const {
  struct stat about {};
  return file.valid() && fstat(file.fd(), &about) == 0 && about.st_nlink == 0 &&
         (about.st_mode & 0777) != kEnded && !removed_at_logout(*directory).empty();
}

void mark_ended(int fd) { (void)fchmod(fd, kEnded); }

Result<LeaseFile> create(std::shared_ptr<const Directory> directory, Record record, const GlobalLock& lock,
                         std::optional<std::string> id) {
  IK_CHECK(lock.held(), "leases are made under the lock");
  record.revision = 1;
  Result<std::string> slot = encode(record);
  if (!slot.ok()) return slot.status();
  const std::optional<std::string> fresh = new_id();
  if (!id) id = fresh;
  if (!fresh) return failed(*directory, "name a lease", errno);
  LeaseFile made{std::move(directory), {}, *std::move(id), std::move(record)};
  const int directory_fd = made.directory->fd();
  const std::string draft = "t" + *fresh;  // No user can guess this name, as one may know the lease's id.
  made.file = OpenFile([&] { return openat(directory_fd, draft.c_str(), kMakeFlags, 0600); });
  if (!made.file.valid()) return failed(*made.directory, "make a lease", errno);
  const int fd = made.file.fd();
  step("created");
  bool good = lock_for_life(fd);
  step("life locked");
  if (good) errno = ENOSPC;  // A short write means a full disk.
  good = good && pwrite(fd, slot.value().data(), slot.value().size(), 0) == ssize_t(slot.value().size()) &&
         reserve(fd, slot.value().size());
  step("written");
  good = good && fchmod(fd, 0644) == 0;
  if (made.record.kind == Kind::waiting) touch(fd);
  step("readable");
  good = good && renameat(directory_fd, draft.c_str(), directory_fd, made.name().c_str()) == 0;
  if (!good) {
    const int error = errno;
    unlinkat(directory_fd, draft.c_str(), 0);
    return failed(*made.directory, "write a lease", error);
  }
  step("renamed");
  return made;
}

Status reread(LeaseFile& file) {
  const std::optional<std::string> slots = read_slots(file.file.fd());
  if (!slots) return failed(*file.directory, "read a lease", errno);
  std::optional<Record> record = decode(*slots);
  if (!record) return Status(Code::io_error, "the lease " + file.id + " has been damaged");
  record->uid = file.record.uid;  // The file's owner.
  file.record = *std::move(record);
  return Status::okay();
}

Status rewrite(LeaseFile& file, Record record, const GlobalLock& lock) {
  IK_CHECK(lock.held(), "leases are changed under the lock");
  record.revision = file.record.revision + 1;
  Result<std::string> slot = encode(record);
  if (!slot.ok()) return slot.status();
  const off_t at = record.revision % 2 == 1 ? 0 : static_cast<off_t>(kSlotBytes);
  step("before rewriting");
  const ssize_t written = pwrite(file.file.fd(), slot.value().data(), slot.value().size(), at);
  if (written != ssize_t(slot.value().size()))
    return failed(*file.directory, "change a lease", written < 0 ? errno : ENOSPC);
  step("rewritten");
  file.record = std::move(record);
  return Status::okay();
}

void touch(int fd) {
  const int64_t now = machine_clock_ns();
  // Sets both times: setting one alone is a change of the file for inotify, and would wake all
  // waiting programs.
  const timespec times[2] = {{0, UTIME_NOW}, {kTouched + now / 1'000'000'000, now % 1'000'000'000}};
  futimens(fd, times);
}

void remove(LeaseFile& file) {
  if (file.file.valid() && file.file.ours() && file.named()) {
    step("before removing");
    mark_ended(file.file.fd());
    unlinkat(file.directory->fd(), file.name().c_str(), 0);
    step("removed");
  }
  file.file.close();
}

Result<LeaseFile> adopt_file(std::shared_ptr<const Directory> directory, int fd) {
  const auto refuse = [&](const std::string& why) {
    return Status(Code::invalid_argument,
                  "descriptor " + std::to_string(fd) + " is no lease of " + directory->path() + ": " + why);
  };
  struct stat about {};
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fstat(fd, &about) != 0) return refuse(std::strerror(errno));
  if ((flags & O_ACCMODE) != O_RDWR || !S_ISREG(about.st_mode)) return refuse("not a file open for writing");
  // The file is the lease if its own lock does not conflict, and a second descriptor sees the lock.
  struct flock life = whole_file(F_WRLCK);
  if (fcntl(fd, F_OFD_GETLK, &life) != 0 || life.l_type != F_UNLCK)
    return refuse("the lease is another descriptor's");
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  char path[4096];
  const ssize_t length = readlink(link.c_str(), path, sizeof path);
  const std::string_view target(path, length > 0 ? static_cast<size_t>(length) : 0);
  const std::string name(target.substr(target.rfind('/') + 1));
  if (name.size() != 17 || name[0] != 'l' || !valid_id(name.substr(1)) || !leads_to(*directory, name, fd))
    return refuse("it was released");
  const std::optional<std::string> slots = read_slots(fd);
  std::optional<Record> record = slots ? decode(*slots) : std::nullopt;
  if (!record) return refuse("it has no record");
  const int again = openat(directory->fd(), name.c_str(), kReadFlags);
  const bool alive = again >= 0 && write_locked(again).value_or(false);
  if (again >= 0) ::close(again);
  if (!alive) return refuse("nobody holds it");
  record->uid = about.st_uid;
  OpenFile file = OpenFile::adopt(fd);
  if (!file.valid())
    return Status(
        Code::invalid_argument,
        "descriptor " + std::to_string(fd) + " is a lease that this process has already: adopt a copy of it");
  return LeaseFile{std::move(directory), std::move(file), name.substr(1), *std::move(record)};
}

}  // namespace innkeeper::lease
