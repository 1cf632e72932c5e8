#include "queue/line.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"

namespace innkeeper::queue {

Line::Line() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Line::~Line() {
  leave();
  if (thread_.joinable()) thread_.join();
  if (event_ >= 0) close(event_);
}

void Line::stand(JobId job, const lease::Arbiter& arbiter, lease::Request request,
                 lease::Arbiter::Look look) {
  IK_CHECK(job_ == 0, "one place at a time");
  job_ = job;
  cancelled_ = false;
  over_ = false;
  request.wait = true;
  thread_ = std::thread([this, leases = lease::Arbiter(arbiter), request = std::move(request),
                         look = std::move(look)]() mutable {
    outcome_.emplace(leases.acquire(request, look, [this] { return cancelled_.load(); }));
    over_ = true;
    const uint64_t one = 1;
    // If the write fails, the runner's timer still finds the outcome.
    if (write(event_, &one, sizeof one) < 0) return;
  });
}

std::optional<Result<lease::Lease>> Line::poll() {
  if (job_ == 0 || !over_) return std::nullopt;
  thread_.join();
  uint64_t count = 0;
  if (read(event_, &count, sizeof count) < 0) count = 0;
  job_ = 0;
  std::optional<Result<lease::Lease>> outcome = std::move(outcome_);
  outcome_.reset();
  if (cancelled_) return Result<lease::Lease>(Status(Code::busy, "left the line"));
  return outcome;
}

}  // namespace innkeeper::queue
