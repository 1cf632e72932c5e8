// Grants GPUs to requests: the protocol of lease files under the global lock (docs/design/leases.md).
//
//   Result<Arbiter> arbiter = Arbiter::open();
//   Result<Lease> lease = arbiter.value().acquire(request, look);   // `look` takes a snapshot
//
// There is no daemon. Each call reads all lease files under the lock, removes dead ones, decides, and adds or
// changes one file. Slow work (the snapshot, /proc, user names) is done before or after the lock is held.
//
// A request that does not fit now and may wait takes a place in the line. A place is a record of kind
// `waiting`, kept alive by the waiting process like a lease. It names the GPUs that it waits for. The memory
// that it needs of these is kept free of all later requests, so that small requests do not starve a big one.
// Later requests may take the remainder. An earlier place that fits now goes first. A place whose process is
// stopped does not count until the process continues (places.h). The first places in the line watch the
// directory, and each later one watches one place (wait.h), so that a thousand may wait.
//
// Errors: invalid_argument, the request can never be granted; busy, not now; unavailable, there is no GPU or
// the lease is over; io_error, the directory failed. The message of busy names the requested, free and
// promised sizes and the holders.
//
// Thread safe. Between calls only the open directory is kept.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "lease/choose.h"
#include "lease/directory.h"
#include "lease/gpu.h"
#include "lease/lease.h"
#include "lease/request.h"

namespace innkeeper::lease {

// Variable that `run` sets for its job: the id of the job's lease, for Request::inside.
inline constexpr const char* kLeaseVariable = "INNKEEPER_LEASE";
// Variable that `run` sets for its job: the UUIDs of the lease's GPUs, separated by commas. The job keeps it
// when it changes CUDA_VISIBLE_DEVICES.
inline constexpr const char* kLeasedVariable = "INNKEEPER_LEASE_GPUS";
// Variable that `run` sets for its job: the number of the lease's open descriptor, for Arbiter::adopt.
inline constexpr const char* kDescriptorVariable = "INNKEEPER_LEASE_FD";

struct Attempt;

class Arbiter {
 public:
  // Takes the snapshot; called without any lock, once for each attempt. A failure ends the waiting. While in
  // line, "no GPUs" or a GPU of unknown memory is no failure, because a driver may fail briefly.
  using Look = std::function<Result<Machine>()>;
  // Called between attempts while waiting; true gives up. May be null.
  using Cancelled = std::function<bool()>;

  // Opens the machine's directory (see directory.h).
  static Result<Arbiter> open();
  explicit Arbiter(std::shared_ptr<const Directory> directory) : directory_(std::move(directory)) {}

  // Makes one attempt, whatever request.wait says.
  Result<Lease> acquire(const Request& request, const Machine& machine);
  // Waits as request.wait and request.wait_limit say. Blocks.
  Result<Lease> acquire(const Request& request, const Look& look, const Cancelled& cancelled = nullptr);

  // The following methods change the record in force, whichever process of the lease changed it last.
  //
  // Changes a shared lease's bytes on each of its GPUs. Growing takes only bytes that no lease has and no
  // place waits for. On failure the lease stays as it was.
  Status resize(Lease& lease, Bytes each, const Machine& machine);
  // Moves the expiry. Fails once it has passed, because other leases may have the bytes.
  Status renew(Lease& lease, std::chrono::milliseconds expires_after);
  // Adopts a lease by an inherited or received descriptor. This process becomes the lease's holder, and the
  // Lease owns the descriptor. On failure the descriptor stays the caller's, unchanged. For a lease that this
  // process has already, only a copy of the descriptor can be adopted.
  Result<Lease> adopt(int descriptor);

  // Adopts a lease that this process has by fork(): `lease` is its own from then on, and outlives its former
  // holder. On failure `lease` stays as it was and remains valid.
  Status take_over(Lease& lease);

  // Creates the file of a lost lease again, in the directory in use now, and signs it. The lease keeps its id
  // unless another user has created a file with that name. Other processes that share the lease have only the
  // lost file open, so the lease ends with this process. Fails with `busy` while other leases have its GPUs
  // or part of its bytes, and with `unavailable` if it is not lost.
  Status restore(Lease& lease, const Machine& machine);

  // Ends a lease or a place in the line by its id; its file is removed. Requires: it is this user's (for
  // root: any user's).
  Status revoke(const std::string& id);
  // Tells whether revoke() could: unavailable, there is no such lease; busy, it is another user's.
  Status may_revoke(const std::string& id) const;

  // Returns all leases and places by id, except expired ones. Takes no lock.
  Result<std::vector<Entry>> list() const;
  // Returns the free space of each GPU, for display. Takes no lock.
  Result<Ledger> ledger(const Machine& machine) const;

  const Directory& directory() const { return *directory_; }
  // Longest wait for the global lock. Not thread safe.
  void set_lock_limit(std::chrono::milliseconds limit) { lock_limit_ = limit; }

 private:
  // Grants the request or refuses it. With a place, the place's turn counts, and the place becomes the lease.
  // Without one, and with `line_up`, a refused attempt that may succeed later takes a place. Blocks: up to
  // the lock's limit.
  Result<Lease> try_once(Attempt& attempt, std::optional<LeaseFile>& place, bool line_up, LockWatch& watch);
  // Makes one attempt. None: another process may have been granted the same bytes meanwhile, so the
  // claim was taken back.
  std::optional<Result<Lease>> try_alone(Attempt& attempt, std::optional<LeaseFile>& place, bool line_up,
                                         LockWatch& watch);
  Status lock_to_grant(GlobalLock& lock, LockWatch* watch = nullptr);
  // Ensures: no process has been granted bytes since `before` was read, except the lease with this id.
  // Requires: that lease is published.
  bool was_alone(GlobalLock& lock, const std::vector<Entry>& before, const std::string& own) const;
  // Publishes a claim that was chosen with `before` in mind. None or false: was_alone() failed, and the
  // claim was taken back.
  Result<std::optional<LeaseFile>> create_alone(Record record, GlobalLock& lock,
                                                const std::vector<Entry>& before,
                                                std::optional<std::string> id = std::nullopt);
  Result<bool> rewrite_alone(LeaseFile& file, Record record, GlobalLock& lock,
                             const std::vector<Entry>& before);
  Status change(LeaseFile& file, std::chrono::milliseconds limit, const std::function<void(Record&)>& edit);

  std::shared_ptr<const Directory> directory_;
  std::chrono::milliseconds lock_limit_{10'000};
};

}  // namespace innkeeper::lease
