// Who gets which cards: the protocol of lease files under the global lock (docs/design/leases.md).
//
//   Result<Arbiter> arbiter = Arbiter::open();
//   Result<Lease> lease = arbiter.value().acquire(request, look);   // `look` takes a snapshot
//
// There is no daemon. Each call reads all lease files under the lock, removes dead ones, decides, and adds or
// changes one file. What is slow (the snapshot, /proc, names of users) happens before or after.
//
// In line: a request that does not fit now and may wait takes a place, a record of kind `waiting`, kept alive
// by the waiting process like a lease. A place names cards that it waits for, and what it needs of these is
// kept free of everybody who came later, so that a big request is not starved by small ones. Who came later
// may have what is left. An earlier place that fits now goes first. A place whose process is stopped does not
// count until it goes on (places.h). The first in the line watch the folder, the others one place each
// (wait.h), so that a thousand may wait.
//
// Errors: invalid_argument, can never be granted; busy, not now (asked, free, promised, who holds);
// unavailable, there is no card, or the lease is over; io_error, the folder.
//
// Thread safe. Nothing is kept between calls but the open folder.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "lease/card.h"
#include "lease/choose.h"
#include "lease/directory.h"
#include "lease/lease.h"
#include "lease/request.h"

namespace innkeeper::lease {

// Set by `run` for its job: the id of its lease, for Request::inside.
inline constexpr const char* kLeaseVariable = "INNKEEPER_LEASE";
// Set beside it: the UUIDs of the lease's cards, separated by commas. The job keeps them when it changes
// CUDA_VISIBLE_DEVICES.
inline constexpr const char* kLeasedVariable = "INNKEEPER_LEASE_GPUS";
// The descriptor that was left open for it, for Arbiter::adopt.
inline constexpr const char* kDescriptorVariable = "INNKEEPER_LEASE_FD";

struct Attempt;

class Arbiter {
 public:
  // Takes the snapshot; called without any lock, once for each attempt. A failure ends the waiting. In line
  // "no cards", or a card of unknown memory, is no failure: drivers stumble.
  using Look = std::function<Result<Machine>()>;
  // Asked between attempts while waiting: true gives up. May be null.
  using Cancelled = std::function<bool()>;

  // The machine's folder (see directory.h).
  static Result<Arbiter> open();
  explicit Arbiter(std::shared_ptr<const Directory> directory) : directory_(std::move(directory)) {}

  // Once, whatever request.wait says.
  Result<Lease> acquire(const Request& request, const Machine& machine);
  // Waits as the request says. Blocks.
  Result<Lease> acquire(const Request& request, const Look& look, const Cancelled& cancelled = nullptr);

  // These change what is in force, whichever process that has the lease changed it last.
  //
  // Changes how much of each of its cards a shared lease has. Growing takes what nobody has or waits for; on
  // failure it stays as it was.
  Status resize(Lease& lease, Bytes each, const Machine& machine);
  // Moves the expiry. Not once it has passed: the bytes may be somebody else's.
  Status renew(Lease& lease, std::chrono::milliseconds expires_after);
  // A lease whose descriptor was inherited or received. This process becomes the one who holds it, and the
  // descriptor the Lease's. A failure leaves the descriptor as it was, the caller's. Of a lease that this
  // process has already a copy of the descriptor can be adopted, not the same one.
  Result<Lease> adopt(int descriptor);

  // The same for one that this process has by fork(): `lease` is its own from then on, and its holder's end
  // is not the lease's. On failure it stays as it was, and holds as well.
  Status take_over(Lease& lease);

  // Creates the file of a lost lease again, in the folder in use now, and signs it. It keeps its id unless
  // another user has created a file with that name. Other processes that share the lease have only the lost
  // file open, so the lease ends with this process. Fails with `busy` while others have been granted its GPUs
  // or part of its bytes; `unavailable` if it is not lost.
  Status restore(Lease& lease, const Machine& machine);

  // Ends a lease, or a place in the line, of this user (of any, for root) by its id: its file is removed.
  Status revoke(const std::string& id);
  // Whether it could: unavailable, there is none; busy, it is another user's.
  Status may_revoke(const std::string& id) const;

  // What is held and waited for, by id, expired leases left out. Takes no lock.
  Result<std::vector<Entry>> list() const;
  // What is left of each card, for people. Takes no lock.
  Result<Ledger> ledger(const Machine& machine) const;

  const Directory& directory() const { return *directory_; }
  // How long to wait for the global lock. Not while another thread uses this.
  void set_lock_limit(std::chrono::milliseconds limit) { lock_limit_ = limit; }

 private:
  // Grants, or refuses. With a place it is the place's turn that counts, and it becomes the lease. Without
  // one, and with `line_up`, a refused attempt that may succeed later takes a place.
  // Blocks: up to the lock's limit.
  Result<Lease> try_once(Attempt& attempt, std::optional<LeaseFile>& place, bool line_up, LockWatch& watch);
  // One attempt. None: another process may have been granted the same bytes meanwhile, so the claim was taken
  // back.
  std::optional<Result<Lease>> try_alone(Attempt& attempt, std::optional<LeaseFile>& place, bool line_up,
                                         LockWatch& watch);
  Status lock_to_grant(GlobalLock& lock, LockWatch* watch = nullptr);
  // Ensures: no process has been granted anything since `before` was read, except the lease with this id.
  // Requires: that lease is published.
  bool was_alone(GlobalLock& lock, const std::vector<Entry>& before, const std::string& own) const;
  // Publish a claim that was chosen with `before` in mind. None, or false: was_alone() was not, and the claim
  // was taken back.
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
