// A lease: this process's claim on parts of GPUs, or on whole ones, that every process of the machine sees.
//
// A lease ends with the object, at release(), at its expiry, or when the last process that holds its
// descriptor is gone. The kernel then releases the lock whatever the cause, and no cleanup is needed. A
// stopped process keeps its lease, because its memory is still allocated.
//
// After fork() the child does not have the lease (held() is false there), unless share_with_children() was
// called before. A shared lease lasts until the last of these processes is gone, or until the parent releases
// it. A parent that leaves the lease to its children calls leave().
//
// Thread safety: one thread uses a Lease at a time. Only Arbiter creates leases.
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

  // Id of 16 hexadecimal digits; empty: no lease. A request for a part of the lease names it
  // (Request::inside).
  const std::string& id() const;
  // Claims sorted by UUID; empty: no lease. This and expires_ns() are up to date, even if another process of
  // the lease changed them. If this process does not have the lease (any more), they are the last known.
  std::vector<Claim> claims() const;
  bool exclusive() const;
  int64_t expires_ns() const;  // Expiry by the machine's clock (base/clock.h), ns; 0: never.
  // UUIDs of the lease's GPUs, sorted. uuids() returns them in the form of
  // CUDA_VISIBLE_DEVICES, "GPU-1,GPU-2".
  std::vector<std::string> gpus() const;
  std::string uuids() const;

  // Returns whether this process has the lease's descriptor. It does not tell whether other processes
  // still see the lease.
  bool held() const { return file_ != nullptr && file_->file.valid(); }
  // Returns whether other processes see the lease: it is held, not expired, and no administrator has
  // removed its file.
  bool intact() const;
  // Returns whether systemd removed its file at its user's logout; see Arbiter::restore.
  bool lost() const;

  // Releases the lease for all processes that share it. A second call has no effect.
  void release();

  // Lets later children of fork() keep the lease.
  Status share_with_children();
  // Lets programs that this process executes keep the lease, too. Returns the descriptor's number, for
  // Arbiter::adopt there. The lease then lives as long as the job.
  Result<int> share_through_exec();
  // Descriptor to send by SCM_RIGHTS; it stays the Lease's.
  int descriptor() const { return file_ ? file_->file.fd() : -1; }
  // Closes this process's descriptor without ending the lease, which lives on in the other
  // processes that have one.
  void leave();

 private:
  friend class Arbiter;
  void refresh() const;
  std::unique_ptr<LeaseFile> file_;
};

}  // namespace innkeeper::lease
