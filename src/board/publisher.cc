#include "board/publisher.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/lines.h"
#include "base/log.h"
#include "base/repeat.h"
#include "board/reader.h"
#include "lease/live_file.h"
#include "lease/open_file.h"
#include "lease/process.h"
#include "lease/record.h"

namespace innkeeper::board {
namespace {

// The file in the lease directory, while that directory exists.
class File {
 public:
  ~File() {
    if (file_.valid() && file_.ours() && named()) unlinkat(directory_->fd(), name_.c_str(), 0);
  }
  // Returns false if the file cannot be written now.
  bool write(const std::string& text) {
    if (!named() && !make()) return false;
    // The rest of a longer earlier text after the end does not count: the header has the length.
    return pwrite(file_.fd(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  }
  // Another process may have removed the file, or the whole directory.
  bool named() const {
    struct stat about {};
    return file_.valid() && fstat(file_.fd(), &about) == 0 && about.st_nlink > 0;
  }

 private:
  // The file gets its name after it is locked, so that no reader takes it for a dead one.
  bool make() {
    file_.close();
    auto found = lease::Directory::find_default();
    const std::optional<std::string> id = lease::new_id();
    if (!found.ok() || !id) return false;
    directory_ = std::move(found).value();
    reap(*directory_);
    name_ = "r" + *id;
    const int directory_fd = directory_->fd();
    file_ = lease::OpenFile(
        [directory_fd] { return openat(directory_fd, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600); });
    const std::string link = "/proc/self/fd/" + std::to_string(file_.fd());
    if (file_.valid() && lease::lock_for_life(file_.fd()) && fchmod(file_.fd(), 0644) == 0 &&
        posix_fallocate(file_.fd(), 0, kFileBytes) == 0 &&
        linkat(AT_FDCWD, link.c_str(), directory_fd, name_.c_str(), AT_SYMLINK_FOLLOW) == 0)
      return true;
    if (log_enabled(LogLevel::debug))
      log(LogLevel::debug,
          "no file for innkeeper top in " + directory_->path() + ": " + std::strerror(errno));
    file_.close();
    return false;
  }

  std::shared_ptr<const lease::Directory> directory_;
  lease::OpenFile file_;
  std::string name_;
};

}  // namespace

struct Publisher::State {
  State(Look look_, std::chrono::milliseconds every)
      : look(std::move(look_)),
        record(own_record()),
        thread([this] { publish(); }, every, "innkeeper top will not show this process") {}

  static Record own_record() {
    lease::Record self;
    lease::sign(self);
    Record record;
    record.pid = self.process.pid;
    record.pid_namespace = self.pid_namespace;
    record.command = self.command;
    return record;
  }

  // Runs on the publisher's thread.
  void publish() {
    std::vector<NodeRow> rows = look();
    if (rows == record.nodes && file.named()) return;
    record.nodes = std::move(rows);
    const Result<std::string> text = encode(record);
    if (text.ok()) {
      (void)file.write(text.value());
    } else if (log_enabled(LogLevel::debug)) {
      log(LogLevel::debug, "nothing for innkeeper top: " + text.status().message());
    }
  }

  const Look look;
  const pid_t owner = getpid();
  Record record;
  File file;
  Repeat thread;  // Declared last, so that it ends before the members that it uses.
};

Publisher::Publisher(Look look, std::chrono::milliseconds every)
    : state_(new State(std::move(look), every)) {}

Publisher::~Publisher() {
  // In a child of fork() the file is the parent's, and the thread may have been changing the record.
  if (state_->owner == getpid()) delete state_;
}

}  // namespace innkeeper::board
