// A file descriptor that a forked child does not keep.
//
// A kernel lock lives until the last copy of its descriptor is closed, and fork() copies descriptors. A child
// without knowledge of leases would therefore keep its dead parent's lease, or the global lock, for its whole
// life. Therefore every descriptor that may carry a lock is in one list of the process, and a pthread_atfork
// handler closes them in the child. The handler only closes: an unlock through the copy would free the
// parent's lock. O_CLOEXEC covers exec(). Descriptors are opened under the list's mutex, which fork() takes
// as well, so none is missed.
//
// A child made by a bare clone() or vfork() runs no handler; its descriptors close at exec().
//
// Thread safe, but one thread uses an OpenFile at a time.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>

namespace innkeeper::lease {

class OpenFile {
 public:
  OpenFile() = default;
  // `open` returns a descriptor or -1, and must be short. Check valid() afterwards; errno is that of `open`.
  explicit OpenFile(const std::function<int()>& open);
  // Adopts an open descriptor; in a child also from the object that kept it. The result is not valid if this
  // process has opened or adopted the descriptor already.
  static OpenFile adopt(int fd);
  ~OpenFile() { close(); }
  OpenFile(OpenFile&& other) noexcept = default;
  OpenFile& operator=(OpenFile&& other) noexcept;

  int fd() const;
  bool valid() const { return fd() >= 0; }
  // Returns whether this process opened it. False in a child that kept it, which may close but not unlink.
  bool ours() const;
  // Lets later children of fork() keep the descriptor, and with `exec` also programs that this process
  // executes. False: a system call failed.
  bool keep_in_children(bool exec);
  void close();
  // Takes the descriptor out of the list without closing it.
  int take();

 private:
  struct Entry;
  static Entry* head_;  // List of all open descriptors; guarded by the list's mutex.
  static void before_fork();
  static void after_fork_in_parent();
  static void after_fork_in_child();
  static void unlist(Entry& entry);
  struct Delete {
    void operator()(Entry* entry) const;
  };
  std::unique_ptr<Entry, Delete> entry_;
};

}  // namespace innkeeper::lease
