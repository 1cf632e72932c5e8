#include "lease/open_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>

#include "base/check.h"
#include "base/thread_annotations.h"

namespace innkeeper::lease {

struct OpenFile::Entry {
  int fd = -1;
  pid_t owner = 0;
  bool keep = false;
  Entry* previous = nullptr;
  Entry* next = nullptr;
};

namespace {
// Never destroyed: a lease may be a static object of the program.
Mutex& list_mutex() {
  static Mutex& mutex = *new Mutex;
  return mutex;
}
}  // namespace

// The list is intrusive, because the child's handler must not allocate.
OpenFile::Entry* OpenFile::head_ = nullptr;

// One function locks the mutex and another one unlocks it, which the analysis cannot follow.
void OpenFile::before_fork() IK_NO_THREAD_SAFETY_ANALYSIS { list_mutex().lock(); }
void OpenFile::after_fork_in_parent() IK_NO_THREAD_SAFETY_ANALYSIS { list_mutex().unlock(); }
void OpenFile::after_fork_in_child() IK_NO_THREAD_SAFETY_ANALYSIS {
  for (Entry* entry = head_; entry != nullptr; entry = entry->next) {
    if (entry->keep || entry->fd < 0) continue;
    ::close(entry->fd);
    entry->fd = -1;
  }
  list_mutex().unlock();
}

OpenFile::OpenFile(const std::function<int()>& open) : entry_(new Entry) {
  static const int registered =
      pthread_atfork(&OpenFile::before_fork, &OpenFile::after_fork_in_parent, &OpenFile::after_fork_in_child);
  IK_CHECK(registered == 0, "pthread_atfork has no memory");
  const MutexLock lock(list_mutex());
  entry_->owner = getpid();
  entry_->fd = open();
  entry_->next = head_;
  if (head_ != nullptr) head_->previous = entry_.get();
  head_ = entry_.get();
}

OpenFile OpenFile::adopt(int fd) {
  return OpenFile([fd] {  // Runs under the list's mutex.
    for (Entry* entry = head_; entry != nullptr; entry = entry->next) {
      if (entry->fd != fd) continue;
      if (entry->owner == getpid()) return -1;
      entry->fd = -1;
    }
    return fd;
  });
}

void OpenFile::unlist(Entry& entry) {
  if (entry.previous != nullptr)
    entry.previous->next = entry.next;
  else
    head_ = entry.next;
  if (entry.next != nullptr) entry.next->previous = entry.previous;
}

void OpenFile::Delete::operator()(Entry* entry) const { delete entry; }

OpenFile& OpenFile::operator=(OpenFile&& other) noexcept {
  if (this != &other) {
    close();
    entry_ = std::move(other.entry_);
  }
  return *this;
}

int OpenFile::fd() const { return entry_ ? entry_->fd : -1; }
bool OpenFile::ours() const { return entry_ && entry_->owner == getpid(); }

bool OpenFile::keep_in_children(bool exec) {
  if (!valid()) return false;
  const MutexLock lock(list_mutex());
  if (exec && fcntl(entry_->fd, F_SETFD, 0) != 0) return false;
  entry_->keep = true;
  return true;
}

int OpenFile::take() {
  if (!entry_) return -1;
  const int saved = errno;
  int fd = -1;
  {
    const MutexLock lock(list_mutex());
    unlist(*entry_);
    fd = entry_->fd;
  }
  entry_.reset();
  errno = saved;
  return fd;
}

void OpenFile::close() {
  if (const int fd = take(); fd >= 0) ::close(fd);
}

}  // namespace innkeeper::lease
