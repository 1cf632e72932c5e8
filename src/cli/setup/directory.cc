// The directory of `innkeeper setup` on the running machine: its tmpfs, its rights, its lock, and the
// replacement of earlier directories.
#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "cli/command.h"
#include "cli/setup/mount.h"
#include "cli/setup/steps.h"
#include "lease/global_lock.h"
#include "lease/live_file.h"
#include "lease/process.h"
#include "lease/store.h"

namespace innkeeper::cli {
namespace {

using lease::Directory;
using lease::kLockName;
using lease::kSetUpDirectory;

constexpr std::chrono::milliseconds kLockLimit{5000};
constexpr unsigned long kFlags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
constexpr long kTmpfs = 0x01021994;
constexpr int64_t kPage = 4096;
constexpr int kShares = 4;  // A user may fill at most one of this many parts.

std::string sizes(Bytes size) {
  return fmt::format("size={}k,nr_inodes={}", size.count() / 1024, inodes_of(size));
}

std::string quotas(Bytes size) {
  return fmt::format("usrquota,usrquota_block_hardlimit={}k,usrquota_inode_hardlimit={}",
                     size.count() / 1024 / kShares, inodes_of(size) / kShares);
}

// Opens a tmpfs that is mounted nowhere. <linux/mount.h> declares the constants, but conflicts
// with <sys/mount.h>.
int open_tmpfs() {
  constexpr int kCloseOnExec = 1;
  return static_cast<int>(syscall(SYS_fsopen, "tmpfs", kCloseOnExec));
}

// Returns false in an ordinary user's dry run.
bool kernel_has_quotas() {
  constexpr int kSetFlag = 0;
  const int context = open_tmpfs();
  if (context < 0) return false;
  const bool known = syscall(SYS_fsconfig, context, kSetFlag, "usrquota", nullptr, 0) == 0;
  close(context);
  return known;
}

bool is_mounted() {
  struct stat here {
  }, above{};
  struct statfs system {};
  return stat(kSetUpDirectory, &here) == 0 && stat("/run", &above) == 0 && here.st_dev != above.st_dev &&
         statfs(kSetUpDirectory, &system) == 0 && system.f_type == kTmpfs;
}

// Names the holders of leases in a directory; empty: there are none.
std::string holders(const Directory& directory, const lease::GlobalLock* lock) {
  const Result<lease::Scan> found = lease::scan(directory, lock);
  if (!found.ok()) fail(found.status());
  std::string text;
  size_t shown = 0;
  for (const lease::Entry& entry : found.value().live)
    if (++shown <= 5)
      text += fmt::format("{}{} of {} (pid {}, {})", text.empty() ? "" : ", ", entry.id,
                          lease::user_name(entry.record.uid), entry.record.process.pid,
                          entry.record.command.substr(0, 40));
  return shown > 5 ? text + fmt::format(" and {} more", shown - 5) : text;
}

void refuse_if_held(const SetUp& set_up, const Directory& directory, const lease::GlobalLock* lock,
                    const std::string& otherwise) {
  const std::string who = holders(directory, lock);
  if (who.empty()) return;
  const std::string text = "leases are held in " + directory.path() + ": " + who;
  if (!set_up.dry) fail(kBusy, text + ". When they have ended run this again" + otherwise);
  note(text + "; while they are this refuses");
}

// A lease directory that is removed once the new one exists. It is locked until then, so that no process gets
// a lease in it meanwhile.
struct Old {
  std::shared_ptr<const Directory> directory;
  lease::GlobalLock lock;
};
using Olds = std::vector<std::unique_ptr<Old>>;

// Removes innkeeper's own files.
void sweep(const Directory& old) {
  std::error_code error;
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd/" + std::to_string(old.fd()), error))
    names.push_back(entry.path().filename());
  for (const std::string& name : names) {
    const bool ours =
        name == kLockName || (name.size() == 17 && std::string("ltr").find(name[0]) != std::string::npos);
    if (ours) unlinkat(old.fd(), name.c_str(), 0);
  }
}

// Removes the directory. One that contains other files stays, and is not used.
void retire(SetUp& set_up, const Directory& old) {
  sweep(old);
  if (rmdir(old.path().c_str()) == 0)
    say(set_up, "", "removed " + old.path());
  else
    note("cannot remove " + old.path() + ", which is not used any more: " + std::strerror(errno));
}

// Returns the directories in default places except the new one's, and a plain directory in the
// new one's place.
Olds old_directories(SetUp& set_up) {
  Olds olds;
  for (const std::string& path : lease::default_directories()) {
    struct stat about {};
    if (lstat(path.c_str(), &about) != 0 || (path == kSetUpDirectory && is_mounted())) continue;
    if (!S_ISDIR(about.st_mode)) {  // Another user's link or file is in the way.
      if (!set_up.dry && unlink(path.c_str()) != 0) cannot("remove", path, errno);
      say(set_up, "remove " + path, "removed " + path);
      continue;
    }
    Result<std::shared_ptr<const Directory>> opened = Directory::open(path);
    if (!opened.ok()) {
      note(opened.status().message() +
           ". It is left as it is; leases in it, if there are any, are not seen any more");
      continue;
    }
    olds.push_back(std::make_unique<Old>());
    olds.back()->directory = std::move(opened).value();
    Old& old = *olds.back();
    if (!set_up.dry)
      if (const Status locked = old.lock.lock(*old.directory, kLockLimit); !locked.ok())
        fail(kBusy, locked.message() + " End it, and run this again; or restart the machine");
    refuse_if_held(set_up, *old.directory, set_up.dry ? nullptr : &old.lock,
                   ", or restart the machine: it is set up from then on");
  }
  return olds;
}

void mount_it(SetUp& set_up) {
  const std::string options = mount_options(set_up);
  if (is_mounted()) {
    struct statvfs system {};
    if (statvfs(kSetUpDirectory, &system) != 0) cannot("look at", kSetUpDirectory, errno);
    const Bytes now(static_cast<int64_t>(system.f_blocks) * static_cast<int64_t>(system.f_frsize));
    if (now == set_up.size) return;
    if (!set_up.dry &&
        mount("tmpfs", kSetUpDirectory, nullptr, MS_REMOUNT | kFlags, sizes(set_up.size).c_str()) != 0)
      cannot("give another size to", kSetUpDirectory, errno);
    const std::string sizes_text =
        fmt::format("{} room for {} in place of {}", kSetUpDirectory, to_string(set_up.size), to_string(now));
    say(set_up, "give " + sizes_text, "gave " + sizes_text);
    return;
  }
  if (!set_up.dry) {
    if (mkdir(kSetUpDirectory, 0755) != 0 && errno != EEXIST) cannot("make", kSetUpDirectory, errno);
    if (mount("tmpfs", kSetUpDirectory, "tmpfs", kFlags, ("mode=0755," + options).c_str()) != 0) {
      const int error = errno;
      rmdir(kSetUpDirectory);
      cannot("mount a tmpfs on", kSetUpDirectory, error);
    }
  }
  const std::string what = std::string(kSetUpDirectory) + ", a tmpfs with " + options;
  say(set_up, "mount " + what, "mounted " + what);
}

gid_t group_of(const SetUp& set_up) {
  if (set_up.group.empty()) return 0;
  const struct group* const entry = getgrnam(set_up.group.c_str());
  if (entry == nullptr) fail(kUsage, "--group " + set_up.group + ": there is no such group");
  return entry->gr_gid;
}

// Corrects the rights. Returns true if a right had to change.
bool set_rights(const SetUp& set_up, int fd, gid_t group, mode_t mode, const std::string& path) {
  struct stat about {};
  if (fstat(fd, &about) != 0) cannot("look at", path, errno);
  if (about.st_uid == 0 && about.st_gid == group && (about.st_mode & 07777) == mode) return false;
  // The mode is set first, so that no group meanwhile has more rights than intended.
  if (!set_up.dry && (fchmod(fd, mode & 0744) != 0 || fchown(fd, 0, group) != 0 || fchmod(fd, mode) != 0))
    cannot("set the rights of", path, errno);
  return true;
}

// Replaces a missing lock, or another user's, which that user could replace while it is held. It is held
// during the replacement: a waiting process sees that its name leads elsewhere, and starts again. At this
// point no other user can create or move a file in the directory.
void replace_lock(const Directory& directory, gid_t group, mode_t mode) {
  const std::string path = directory.path() + "/" + kLockName;
  struct stat about {};
  lease::GlobalLock held;
  if (fstatat(directory.fd(), kLockName, &about, AT_SYMLINK_NOFOLLOW) == 0) {
    if (S_ISREG(about.st_mode)) {
      if (const Status locked = held.lock(directory, kLockLimit); !locked.ok()) fail(kBusy, locked.message());
    } else if (unlinkat(directory.fd(), kLockName, S_ISDIR(about.st_mode) ? AT_REMOVEDIR : 0) != 0) {
      cannot("remove", path, errno);
    }
  }
  const std::string draft =
      "t" + lease::new_id().value_or("");  // Drafts of this kind are removed if this process is killed.
  const int fd =
      openat(directory.fd(), draft.c_str(), O_RDONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0400);
  if (fd < 0) cannot("make", path, errno);
  const bool good = fchown(fd, 0, group) == 0 && fchmod(fd, mode) == 0 &&
                    renameat(directory.fd(), draft.c_str(), directory.fd(), kLockName) == 0;
  const int error = errno;
  close(fd);
  if (good) return;
  unlinkat(directory.fd(), draft.c_str(), 0);
  cannot("make", path, error);
}

void secure_it(SetUp& set_up) {
  const std::string where = kSetUpDirectory, path = where + "/" + kLockName;
  if (set_up.dry && !is_mounted())
    return say(set_up, "set the rights of " + where + ", and make its lock", "");
  const gid_t group = group_of(set_up);
  const mode_t lock_mode = set_up.group.empty() ? 0444 : 0440, mode = set_up.group.empty() ? 01777 : 01775;
  const Result<std::shared_ptr<const Directory>> opened = Directory::open(where);
  if (!opened.ok()) fail(opened.status());
  const Directory& directory = *opened.value();
  if (!directory.protects()) {
    if (!set_up.dry) {
      (void)set_rights(set_up, directory.fd(), 0, 0755, where);
      replace_lock(directory, group, lock_mode);
    }
    say(set_up, "make " + path, "made " + path);
  } else {
    const int lock = openat(directory.fd(), kLockName, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (lock < 0) cannot("open", path, errno);
    if (set_rights(set_up, lock, group, lock_mode, path))
      say(set_up, "set the rights of " + path, "set the rights of " + path);
    close(lock);
  }
  if (set_rights(set_up, directory.fd(), group, mode, where))
    say(set_up, "set the rights of " + where, "set the rights of " + where);
}

}  // namespace

void check_group(const SetUp& set_up) { (void)group_of(set_up); }

void check_rights() {
  if (geteuid() != 0)
    fail(kNotYours, "this is for root: sudo innkeeper setup. --dry-run shows to everybody what it would do");
  const int context = open_tmpfs();
  const int error = errno;
  if (context >= 0) close(context);
  if (context < 0 && error == EPERM)
    fail(kNotYours,
         "nothing may be mounted here: set up the machine, and mount its /run/innkeeper into its containers");
}

int64_t inodes_of(Bytes size) { return size.count() / kPage; }

std::string mount_options(const SetUp& set_up) {
  const std::string plain = sizes(set_up.size);
  return set_up.root.empty() && kernel_has_quotas() ? plain + "," + quotas(set_up.size) : plain;
}

void make_directory(SetUp& set_up) {
  Olds olds = old_directories(set_up);
  if (!set_up.dry)
    for (const auto& old : olds)
      if (old->directory->path() == kSetUpDirectory) sweep(*old->directory);  // The mount hides these files.
  mount_it(set_up);
  secure_it(set_up);
  for (; !olds.empty(); olds.pop_back()) {  // Locks are released in the order in which they nest.
    const std::string& path = olds.back()->directory->path();
    if (path == kSetUpDirectory) continue;
    if (set_up.dry)
      say(set_up, "remove " + path, "");
    else
      retire(set_up, *olds.back()->directory);
  }
}

void remove_directory(SetUp& set_up) {
  struct stat about {};
  if (lstat(kSetUpDirectory, &about) != 0) return;
  const Result<std::shared_ptr<const Directory>> opened = Directory::open(kSetUpDirectory);
  if (!opened.ok()) fail(opened.status());
  lease::GlobalLock lock;
  if (!set_up.dry)
    if (const Status locked = lock.lock(*opened.value(), kLockLimit); !locked.ok())
      fail(kBusy, locked.message());
  refuse_if_held(set_up, *opened.value(), set_up.dry ? nullptr : &lock, "");
  if (set_up.dry) return say(set_up, "remove " + std::string(kSetUpDirectory), "");
  if (!is_mounted()) return retire(set_up, *opened.value());
  // A process that has it open (a waiting runner, say) sees that its name leads elsewhere before
  // it grants a lease.
  if (umount2(kSetUpDirectory, MNT_DETACH) != 0) cannot("unmount", kSetUpDirectory, errno);
  if (rmdir(kSetUpDirectory) != 0) cannot("remove", kSetUpDirectory, errno);
  say(set_up, "", "removed " + std::string(kSetUpDirectory));
}

}  // namespace innkeeper::cli
