// A file descriptor that a forked child does not keep.
//
// A kernel lock lives until the last copy of its descriptor is closed. fork() copies descriptors, so a child
// that knows nothing of leases would keep its dead parent's lease, or the global lock, for its whole life.
// Every descriptor that may carry a lock is therefore in one list of the process, and a pthread_atfork
// handler closes them in the child. It only closes: an unlock through the copy would free the parent's lock.
// exec() is covered by O_CLOEXEC. Descriptors are opened under the list's mutex, which fork() takes as well,
// so none is missed.
//
// A child made by a bare clone() or vfork() runs no handler: there exec() closes them.
//
// Thread safe, but one OpenFile is used by one thread at a time.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>

namespace innkeeper::lease {

class OpenFile {
 public:
  OpenFile() = default;
  // `open` gives a descriptor or -1, and must be short. Check valid(); errno is open's.
  explicit OpenFile(const std::function<int()>& open);
  // Takes over a descriptor that is open; in a child also from the object that it kept. Not valid if this
  // process has opened or adopted it already.
  static OpenFile adopt(int fd);
  ~OpenFile() { close(); }
  OpenFile(OpenFile&& other) noexcept = default;
  OpenFile& operator=(OpenFile&& other) noexcept;

  int fd() const;
  bool valid() const { return fd() >= 0; }
  // This process opened it. False in a child that kept it, which may close but not unlink.
  bool ours() const;
  // From now on children of fork() keep it, and with `exec` also what this process executes. False: a system
  // call failed.
  bool keep_in_children(bool exec);
  void close();
  // Takes the descriptor out of the list without closing it.
  int take();

 private:
  struct Entry;
  static Entry* head_;  // of all that are open; guarded by the list's mutex
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
