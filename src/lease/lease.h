// A lease: this process's claim on parts of cards, or on whole ones, that every process of the machine sees.
//
// It ends when the object does, when release() is called, at its expiry, or when the last process that holds
// its descriptor is gone, however that happens: the kernel gives the lock back, nothing needs to be cleaned
// up. A stopped process keeps its lease: its memory is still allocated.
//
// After fork() the child does not have it (held() is false there), unless share_with_children() was called
// before. Then it lasts until the last of them is gone, or until the parent releases it: to leave it to the
// children call leave().
//
// One Lease is used by one thread at a time. Not made by hand: Arbiter gives it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "lease/store.h"

namespace innkeeper::lease {

class Lease {
 public:
  Lease() = default;
  explicit Lease(LeaseFile file) : file_(std::make_unique<LeaseFile>(std::move(file))) {}
  ~Lease() { release(); }
  Lease(Lease&&) noexcept = default;
  Lease& operator=(Lease&& other) noexcept;

  // 16 hexadecimal digits, empty for none. What a part of it is asked for by (Request::inside).
  const std::string& id() const;
  // Sorted by UUID. Empty for none. This and expires_ns() are as they are now, also if another process that
  // has the lease changed them; where this process does not have it (any more), as they were last.
  std::vector<Claim> claims() const;
  bool exclusive() const;
  int64_t expires_ns() const;  // by the machine's clock (base/clock.h), 0: never
  // UUIDs of its cards, sorted; and as CUDA_VISIBLE_DEVICES wants them, "GPU-1,GPU-2".
  std::vector<std::string> cards() const;
  std::string uuids() const;

  // This process has its descriptor. It says nothing about whether others still see it.
  bool held() const { return file_ != nullptr && file_->file.valid(); }
  // Others see it: held, not expired, and its file not removed by somebody who may (an administrator).
  bool intact() const;
  // Its user logged out, and systemd removed its file: Arbiter::restore.
  bool lost() const;

  // Gives it back for all who share it. Again: does nothing.
  void release();

  // From now on children of fork() keep it.
  Status share_with_children();
  // Also what this process executes: the descriptor's number, for Arbiter::adopt there. The job's life is
  // then the lease's.
  Result<int> share_through_exec();
  // For SCM_RIGHTS; stays ours.
  int descriptor() const { return file_ ? file_->file.fd() : -1; }
  // This process lets go of it without ending it: it lives on in whoever else has the descriptor.
  void leave();

 private:
  friend class Arbiter;
  void refresh() const;
  std::unique_ptr<LeaseFile> file_;
};

}  // namespace innkeeper::lease
