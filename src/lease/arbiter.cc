#include "lease/arbiter.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <thread>

#include "base/clock.h"
#include "base/repeat.h"
#include "lease/attempt.h"
#include "lease/kill_point.h"
#include "lease/live_file.h"
#include "lease/process.h"
#include "lease/wait.h"

namespace innkeeper::lease {
namespace {

using std::chrono::milliseconds;

// A look at the GPUs that takes longer than this may soon take longer than kPlaceLost.
constexpr milliseconds kSlowLook{500};
// Period at which a thread touches a place, well within kPlaceLost. If the process is stopped,
// so is this thread.
constexpr std::chrono::seconds kTouch{1};
// Longest pause between two attempts without the lock.
constexpr milliseconds kMostBetweenTries{200};
// Longest wait for the lock to write the holder's name. No grant depends on the name.
constexpr milliseconds kToSign{300};

Status sensible(const Request& request, const Machine& machine, bool in_line = false) {
  IK_RETURN_IF_ERROR(check(request));
  if (machine.gpus.empty())
    return Status(in_line ? Code::busy : Code::unavailable,
                  "asked for " + describe(request) + ", but no GPU can be seen");
  return Status::okay();
}

Status over() { return Status(Code::unavailable, "this lease is over, or another process's"); }

Status contested() { return Status(Code::busy, "others were granted GPUs at the same moment. Ask again"); }

// Reads the record in force. Fails if the lease is over. Requires: the lock is held.
Status refresh(LeaseFile& file) {
  if (!file.named()) return over();
  IK_RETURN_IF_ERROR(reread(file));
  return file.record.expired(machine_clock_ns()) ? over() : Status::okay();
}

}  // namespace

Result<Arbiter> Arbiter::open() {
  Result<std::shared_ptr<const Directory>> directory = Directory::open_default();
  if (!directory.ok()) return directory.status();
  return Arbiter(std::move(directory).value());
}

// Takes the lock in the directory where all present callers grant as well.
Status Arbiter::lock_to_grant(GlobalLock& lock, LockWatch* watch) {
  IK_RETURN_IF_ERROR(lock.lock(*directory_, lock_limit_, watch));
  if (!directory_->superseded()) return Status::okay();
  lock.unlock();
  return Status(Code::io_error, "the leases of this machine are not in " + directory_->path() +
                                    " any more: an administrator has set up another directory. Ask again");
}

bool Arbiter::was_alone(GlobalLock& lock, const std::vector<Entry>& before, const std::string& own) const {
  if (lock.exclusive()) return true;
  step("published alone?");
  if (!lock.undisturbed(*directory_) || directory_->superseded()) return false;
  const Result<Scan> now = scan(*directory_, nullptr);
  if (!now.ok()) return false;
  return std::all_of(now.value().live.begin(), now.value().live.end(), [&](const Entry& entry) {
    if (entry.id == own || entry.record.kind == Kind::waiting) return true;
    return std::any_of(before.begin(), before.end(), [&](const Entry& known) {
      return known.id == entry.id && known.record.kind == entry.record.kind &&
             known.record.revision == entry.record.revision;
    });
  });
}

Result<std::optional<LeaseFile>> Arbiter::create_alone(Record record, GlobalLock& lock,
                                                       const std::vector<Entry>& before,
                                                       std::optional<std::string> id) {
  Result<LeaseFile> made = create(directory_, std::move(record), lock, std::move(id));
  if (!made.ok()) return made.status();
  if (was_alone(lock, before, made.value().id)) return std::optional(std::move(made).value());
  remove(made.value());
  return std::optional<LeaseFile>();
}

Result<bool> Arbiter::rewrite_alone(LeaseFile& file, Record record, GlobalLock& lock,
                                    const std::vector<Entry>& before) {
  const Record old = file.record;
  IK_RETURN_IF_ERROR(rewrite(file, std::move(record), lock));
  if (was_alone(lock, before, file.id)) return true;
  IK_RETURN_IF_ERROR(rewrite(file, old, lock));
  return false;
}

std::optional<Result<Lease>> Arbiter::try_alone(Attempt& attempt, std::optional<LeaseFile>& place,
                                                bool line_up, LockWatch& watch) {
  GlobalLock lock;
  IK_RETURN_IF_ERROR(lock_to_grant(lock, &watch));
  Result<Scan> found = scan(*directory_, &lock);
  if (!found.ok()) return found.status();
  attempt.live = std::move(found.value().live);
  if (place && !place->named())
    return place->lost() ? Status(Code::busy, "the place in the line was lost")
                         : Status(Code::unavailable,
                                  "the place in the line was removed by an administrator or its owner");
  IK_RETURN_IF_ERROR(attempt.weigh(place));
  const bool full = found.value().own_live >= kMaxFilesPerUser;
  if (full && !place)
    return Status(Code::busy, "this user has " + std::to_string(found.value().own_live) +
                                  " leases already, at most " + std::to_string(kMaxFilesPerUser) +
                                  " are possible");
  const std::vector<double> order = scores(attempt.machine, attempt.ledger, attempt.request.by, attempt.keys);
  const auto gpus = choose(attempt.machine, attempt.ledger, attempt.wish, order);
  if (gpus && place) {
    const Result<bool> alone = rewrite_alone(*place, attempt.granted(*gpus), lock, attempt.live);
    if (!alone.ok()) return alone.status();
    if (!alone.value()) return std::nullopt;
    lock.unlock();
    LeaseFile file = std::move(*place);
    place = std::nullopt;
    return Lease(std::move(file));
  }
  if (gpus) {
    Result<std::optional<LeaseFile>> made = create_alone(attempt.granted(*gpus), lock, attempt.live);
    if (!made.ok()) return made.status();
    if (!made.value()) return std::nullopt;
    lock.unlock();
    return Lease(*std::move(made).value());
  }
  if (line_up && !place) {
    if (const auto wanted = choose_to_wait_for(attempt.machine, attempt.ledger, attempt.wish)) {
      Result<LeaseFile> made = create(directory_, attempt.waiting(*wanted), lock);
      if (!made.ok()) return made.status();
      place = std::move(made).value();
    }
  }
  lock.unlock();
  return attempt.refusal();
}

Result<Lease> Arbiter::try_once(Attempt& attempt, std::optional<LeaseFile>& place, bool line_up,
                                LockWatch& watch) {
  const auto until = std::chrono::steady_clock::now() + lock_limit_;
  std::minstd_rand spread(static_cast<unsigned>(machine_clock_ns()));
  for (milliseconds pause{1};; pause = std::min(2 * pause, kMostBetweenTries)) {
    std::optional<Result<Lease>> result = try_alone(attempt, place, line_up, watch);
    if (watch.only_kept()) watch.tell(directory_->path() + "/" + kLockName);
    if (result) return *std::move(result);
    if (std::chrono::steady_clock::now() >= until)
      return Status(Code::busy, "others are granted GPUs at the same moments again and again while " +
                                    directory_->path() + "/" + kLockName + " is kept locked");
    // Two processes that collide would collide again after equal pauses.
    std::this_thread::sleep_for(pause + milliseconds(spread() % static_cast<unsigned>(pause.count() + 1)));
  }
}

Result<Lease> Arbiter::acquire(const Request& request, const Machine& machine) {
  IK_RETURN_IF_ERROR(sensible(request, machine));
  Attempt attempt(request, machine, machine_clock_ns());
  std::optional<LeaseFile> no_place;
  LockWatch watch;
  return try_once(attempt, no_place, false, watch);
}

Result<Lease> Arbiter::acquire(const Request& request, const Look& look, const Cancelled& cancelled) {
  const int64_t asked_ns = machine_clock_ns();
  Wait wait(*directory_, request, cancelled);
  std::optional<LeaseFile> place;
  LockWatch watch;
  struct LeaveLine {
    std::optional<LeaseFile>& place;
    ~LeaveLine() {
      if (place) remove(*place);
    }
  } leave_line{place};
  std::optional<Repeat> ticker;  // Ends before `place` does.
  for (;;) {
    const milliseconds before = wait.so_far();
    Result<Machine> machine = look();
    if (!machine.ok()) return machine.status();
    const bool slow = wait.so_far() - before > kSlowLook;
    // The request takes a new place but keeps its order, which goes by the time of the request.
    if (place && place->lost()) {
      ticker.reset();
      place.reset();
    }
    if (place) touch(place->file.fd());
    Turn turn;
    const auto attempt_now = [&]() -> Result<Lease> {
      IK_RETURN_IF_ERROR(sensible(request, machine.value(), place.has_value()));
      Attempt attempt(request, machine.value(), asked_ns);
      Result<Lease> result = try_once(attempt, place, request.wait, watch);
      turn = attempt.turn;
      return result;
    };
    Result<Lease> result = attempt_now();
    if (result.ok() || result.status().code() != Code::busy || !request.wait) return result;
    if (place && slow && !ticker)
      ticker.emplace([fd = place->file.fd()] { touch(fd); }, kTouch, "a place in line may be lost");
    if (!wait.until_next(turn, place ? &*place : nullptr))
      return Status(Code::busy, wait.gave_up() + ": " + result.status().message());
  }
}

Status Arbiter::change(LeaseFile& file, milliseconds limit, const std::function<void(Record&)>& edit) {
  GlobalLock lock;
  IK_RETURN_IF_ERROR(lock.lock(*directory_, limit));
  IK_RETURN_IF_ERROR(refresh(file));
  const Record before = file.record;
  Record record = before;
  edit(record);
  IK_RETURN_IF_ERROR(rewrite(file, std::move(record), lock));
  if (lock.exclusive() || !before.expired(machine_clock_ns())) return Status::okay();
  // Other callers may have been granted its bytes before the renewal was written.
  IK_RETURN_IF_ERROR(rewrite(file, before, lock));
  return over();
}

Status Arbiter::resize(Lease& lease, Bytes each, const Machine& machine) {
  if (!lease.held()) return over();
  LeaseFile& file = *lease.file_;
  if (file.record.exclusive) return Status(Code::invalid_argument, "an exclusive lease has its GPUs whole");
  Request request;
  request.memory = each;
  request.count = static_cast<int>(file.record.claims.size());
  IK_RETURN_IF_ERROR(sensible(request, machine));
  Attempt attempt(request, machine, machine_clock_ns());
  GlobalLock lock;
  IK_RETURN_IF_ERROR(lock_to_grant(lock));
  IK_RETURN_IF_ERROR(refresh(file));
  Result<Scan> found = scan(*directory_, &lock);
  if (!found.ok()) return found.status();
  attempt.live = std::move(found.value().live);
  const View view{machine_clock_ns(), attempt.record.pid_namespace};
  const Entry own{file.id, file.record, 0};
  // A part takes from the rest of its whole lease. Once all its whole leases have ended, it
  // takes from the GPUs.
  if (const Entry* whole = whole_of(own, attempt.live, view.now_ns)) request.inside = whole->id;
  IK_RETURN_IF_ERROR(attempt.weigh(std::nullopt));
  const Ledger parts = make_ledger_inside(machine, attempt.live, own, view);
  Record record = file.record;
  for (Claim& claim : record.claims) {
    const Bytes more = each - claim.bytes;
    const std::optional<size_t> at = index_of(machine, claim.uuid);
    const bool fits = at && attempt.ledger[*at].allowed && attempt.ledger[*at].available >= more;
    if (more > Bytes(0) && !fits) {
      lock.unlock();
      const Bytes left = at ? std::max(Bytes(0), attempt.ledger[*at].available) : Bytes(0);
      return Status(Code::busy, "asked to grow a lease on " + claim.uuid + " from " + to_string(claim.bytes) +
                                    " to " + to_string(each) + ", but " + to_string(left) +
                                    " are left there");
    }
    if (at && parts[*at].promised > each) {
      return Status(Code::busy, "asked to shrink a lease on " + claim.uuid + " to " + to_string(each) +
                                    ", but " + to_string(parts[*at].promised) + " of it are leased on");
    }
    claim.bytes = each;
  }
  const Result<bool> alone = rewrite_alone(file, std::move(record), lock, attempt.live);
  if (!alone.ok()) return alone.status();
  return alone.value() ? Status::okay() : contested();
}

Status Arbiter::renew(Lease& lease, milliseconds expires_after) {
  IK_RETURN_IF_ERROR(check_expiry(expires_after));
  if (!lease.held()) return over();
  return change(*lease.file_, lock_limit_, [expires_after](Record& record) {
    record.expires_ns = machine_clock_ns() + std::chrono::nanoseconds(expires_after).count();
  });
}

Result<Lease> Arbiter::adopt(int descriptor) {
  Result<LeaseFile> adopted = adopt_file(directory_, descriptor);
  if (!adopted.ok()) return adopted.status();
  const Status signed_over = change(adopted.value(), std::min(lock_limit_, kToSign), [](Record& record) {
    const uint32_t owner = record.uid;
    sign(record);
    record.uid = owner;
  });
  // If another process holds the lock too long, only the name in the record is lost, not the lease.
  if (!signed_over.ok() && signed_over.code() != Code::busy) {
    adopted.value().file.take();  // The descriptor stays the caller's, unchanged.
    return signed_over;
  }
  fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  return Lease(std::move(adopted).value());
}

Status Arbiter::take_over(Lease& lease) {
  const int copy = fcntl(lease.descriptor(), F_DUPFD_CLOEXEC, 0);
  if (copy < 0)
    return Status(Code::io_error, std::string("cannot take a lease over: ") + std::strerror(errno));
  Result<Lease> own = adopt(copy);
  if (!own.ok()) {
    close(copy);
    return own.status();
  }
  lease.leave();
  lease = std::move(own).value();
  return Status::okay();
}

Status Arbiter::restore(Lease& lease, const Machine& machine) {
  if (!lease.lost()) return over();
  Entry own{lease.id(), lease.file_->record, 0};
  sign(own.record);
  own.record.command = lease.file_->record.command;
  LockWatch watch;
  GlobalLock lock;
  IK_RETURN_IF_ERROR(lock_to_grant(lock, &watch));
  Result<Scan> found = scan(*directory_, &lock);
  if (!found.ok()) return found.status();
  std::optional<std::string> id = own.id;
  struct stat about {};
  if (fstatat(directory_->fd(), ("l" + own.id).c_str(), &about, AT_SYMLINK_NOFOLLOW) == 0) {
    if (about.st_uid == geteuid()) return over();  // Another process of the lease has restored it already.
    id.reset();                                    // Any user can create a file with this name.
  }
  std::vector<Entry> live = std::move(found.value().live);
  live.push_back(own);
  std::sort(live.begin(), live.end(), [](const Entry& a, const Entry& b) { return a.id < b.id; });
  const View view{machine_clock_ns(), own.record.pid_namespace};
  const Entry* whole = whole_of(own, live, view.now_ns);
  const Ledger ledger =
      whole == nullptr ? make_ledger(machine, live, view) : make_ledger_inside(machine, live, *whole, view);
  for (const Claim& claim : own.record.claims) {
    const std::optional<size_t> at = index_of(machine, claim.uuid);
    if (!at) return Status(Code::busy, "the GPU " + claim.uuid + " of a lost lease cannot be seen");
    const Standing& standing = ledger[*at];
    if (standing.promised <= standing.capacity && (!standing.taken || standing.leases < 2)) continue;
    lock.unlock();
    return Status(Code::busy, "of " + claim.uuid + ", of which a lost lease had " + to_string(claim.bytes) +
                                  ", others have been granted " + to_string(standing.promised - claim.bytes) +
                                  " of " + to_string(standing.capacity) + " since");
  }
  Result<std::optional<LeaseFile>> made = create_alone(own.record, lock, live, std::move(id));
  if (!made.ok()) return made.status();
  if (!made.value()) return contested();
  lock.unlock();
  lease = Lease(*std::move(made).value());
  return Status::okay();
}

Status Arbiter::may_revoke(const std::string& id) const {
  if (!valid_id(id)) return Status(Code::invalid_argument, "\"" + printable(id) + "\" is no lease's id");
  struct stat about {};
  if (fstatat(directory_->fd(), ("l" + id).c_str(), &about, AT_SYMLINK_NOFOLLOW) != 0)
    return Status(Code::unavailable, "there is no lease " + id);
  // The directory's owner could remove the file, too. But only the file's owner can note in it that
  // this was no logout.
  if (about.st_uid != geteuid() && geteuid() != 0)
    return Status(Code::busy, "the lease " + id + " is " + user_name(about.st_uid) + "'s");
  return Status::okay();
}

Status Arbiter::revoke(const std::string& id) {
  IK_RETURN_IF_ERROR(may_revoke(id));
  const std::string name = "l" + id;
  const OpenFile file([&] { return openat(directory_->fd(), name.c_str(), kReadFlags); });
  if (file.valid()) mark_ended(file.fd());
  if (unlinkat(directory_->fd(), name.c_str(), 0) == 0 || errno == ENOENT) return Status::okay();
  return Status(Code::io_error, "cannot remove the lease " + id + ": " + std::strerror(errno));
}

Result<std::vector<Entry>> Arbiter::list() const {
  Result<Scan> found = scan(*directory_, nullptr);
  if (!found.ok()) return found.status();
  return std::move(found.value().live);
}

Result<Ledger> Arbiter::ledger(const Machine& machine) const {
  Result<std::vector<Entry>> live = list();
  if (!live.ok()) return live.status();
  return make_ledger(machine, live.value(), {machine_clock_ns(), own_pid_namespace()});
}

}  // namespace innkeeper::lease
