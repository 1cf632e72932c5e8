#include "board/publisher.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <system_error>
#include <thread>

#include "base/lines.h"
#include "base/log.h"
#include "base/thread_annotations.h"
#include "board/reader.h"
#include "lease/live_file.h"
#include "lease/open_file.h"
#include "lease/process.h"
#include "lease/record.h"

namespace innkeeper::board {
namespace {

// The file in the lease folder, while there is such a folder.
class File {
 public:
  ~File() {
    if (file_.valid() && file_.ours() && named()) unlinkat(directory_->fd(), name_.c_str(), 0);
  }
  // False: not now.
  bool write(const std::string& text) {
    if (!named() && !make()) return false;
    // What a longer text before left behind the end does not count: the header says the length.
    return pwrite(file_.fd(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  }
  // Somebody may have removed it, or the whole folder.
  bool named() const {
    struct stat about {};
    return file_.valid() && fstat(file_.fd(), &about) == 0 && about.st_nlink > 0;
  }

 private:
  // It gets its name when it is locked, so that nobody takes it for a dead one.
  bool make() {
    file_.close();
    auto found = lease::Directory::find_default();
    const std::optional<std::string> id = lease::new_id();
    if (!found.ok() || !id) return false;
    directory_ = std::move(found).value();
    reap(*directory_);
    name_ = "r" + *id;
    const int folder = directory_->fd();
    file_ = lease::OpenFile([folder] { return openat(folder, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600); });
    const std::string link = "/proc/self/fd/" + std::to_string(file_.fd());
    if (file_.valid() && lease::lock_for_life(file_.fd()) && fchmod(file_.fd(), 0644) == 0 &&
        posix_fallocate(file_.fd(), 0, kFileBytes) == 0 &&
        linkat(AT_FDCWD, link.c_str(), folder, name_.c_str(), AT_SYMLINK_FOLLOW) == 0)
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
  State(Look look_, std::chrono::milliseconds every_) : look(std::move(look_)), every(every_) {
    lease::Record self;
    lease::sign(self);
    record.pid = self.process.pid;
    record.pid_namespace = self.pid_namespace;
    record.command = self.command;
  }

  void run() {
    MutexLock lock(mutex);
    while (!stop) {
      lock.unlock();
      publish();
      lock.lock();
      const auto next = std::chrono::steady_clock::now() + every;
      for (auto now = next - every; !stop && now < next; now = std::chrono::steady_clock::now())
        wake.wait_for(mutex, std::chrono::duration_cast<std::chrono::microseconds>(next - now));
    }
  }
  // The publisher's thread.
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
  const std::chrono::milliseconds every;
  const pid_t owner = getpid();
  Record record;
  File file;
  Mutex mutex;
  CondVar wake;
  bool stop IK_GUARDED_BY(mutex) = false;
  std::thread thread;
};

Publisher::Publisher(Look look, std::chrono::milliseconds every) : state_(new State(std::move(look), every)) {
  // The program's signals are for the program's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    state_->thread = std::thread([state = state_] { state->run(); });
  } catch (const std::system_error& error) {
    log(LogLevel::info, std::string("innkeeper top will not show this process: no thread: ") + error.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Publisher::~Publisher() {
  // A child of fork() has the state without the thread, its mutex in whatever state it was: neither can be
  // ended, and the file is the parent's.
  if (state_->owner != getpid()) return;
  {
    const MutexLock lock(state_->mutex);
    state_->stop = true;
  }
  state_->wake.notify_all();
  if (state_->thread.joinable()) state_->thread.join();
  delete state_;
}

}  // namespace innkeeper::board
