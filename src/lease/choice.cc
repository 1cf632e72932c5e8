// Implements the public interface of choosing (include/innkeeper/choice.h) over here.h and shown.h. Failures
// become exceptions here.
#include "innkeeper/choice.h"

#include <algorithm>
#include <utility>

#include "lease/gpus.h"
#include "lease/here.h"
#include "lease/shown.h"

namespace innkeeper {
namespace {

using std::chrono::milliseconds;

void throw_if_error(const Status& status) {
  if (status.ok()) return;
  if (status.code() == Code::busy) throw LeaseBusy(status.message());
  if (status.code() == Code::invalid_argument) throw std::invalid_argument(status.message());
  throw std::runtime_error(status.message());
}

template <class T>
T value_of(Result<T> result) {
  throw_if_error(result.status());
  return std::move(result).value();
}

lease::By by(ChoiceMode mode) {
  switch (mode) {
    case ChoiceMode::free: return lease::By::free;
    case ChoiceMode::ratio: return lease::By::ratio;
    case ChoiceMode::power: return lease::By::power;
    case ChoiceMode::utilization: return lease::By::utilization;
  }
  throw std::invalid_argument("mode " + std::to_string(static_cast<int>(mode)) + " is none of 0 to 3");
}

lease::Lease take(const ChoiceRequest& asked, std::optional<Bytes> memory, std::optional<bool> exclusive) {
  lease::Request request;
  request.count = asked.n;
  request.memory = memory;
  request.exclusive = exclusive;
  request.by = by(asked.mode);
  request.wait = asked.wait > milliseconds(0);
  if (asked.wait != ChoiceRequest::kForEver) request.wait_limit = asked.wait;
  request.expires_after = asked.expires;
  request.job = asked.job;
  throw_if_error(lease::restrict_here(request, asked.vendor));
  if (asked.key) request.key = lease::by_keys(asked.key);
  return value_of(lease::acquire_here(request, asked.cancelled));
}

std::optional<Bytes> bytes_of(std::optional<int64_t> memory) {
  return memory ? std::optional(Bytes(*memory)) : std::nullopt;
}

}  // namespace

struct Lease::Parts {
  lease::Lease lease;
};

struct Choice::Parts {
  Lease lease;
  std::vector<std::string> uuids;
  std::optional<int64_t> memory;
  lease::Shown shown;
};

struct ChoiceParts {
  static Lease lease(lease::Lease granted) {
    return Lease(std::make_unique<Lease::Parts>(Lease::Parts{std::move(granted)}));
  }
  static Choice choice(Lease lease, std::optional<int64_t> memory) {
    std::vector<std::string> uuids = lease.uuids();
    auto parts = std::make_unique<Choice::Parts>(
        Choice::Parts{std::move(lease), std::move(uuids), memory, lease::Shown()});
    const Lease& held = parts->lease;  // Lives in `parts` for as long as the choice is shown.
    parts->shown = lease::Shown(parts->uuids, telemetry::snapshot(telemetry::Wanted::nothing),
                                [&held] { return held.held(); });
    return Choice(std::move(parts));
  }
};

Lease::Lease(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Lease::~Lease() = default;
Lease::Lease(Lease&&) noexcept = default;
Lease& Lease::operator=(Lease&&) noexcept = default;

const std::string& Lease::id() const { return parts_->lease.id(); }
std::vector<std::string> Lease::uuids() const { return parts_->lease.gpus(); }
bool Lease::exclusive() const { return parts_->lease.exclusive(); }
bool Lease::held() const { return parts_ && parts_->lease.held(); }
bool Lease::intact() const { return parts_ && parts_->lease.intact(); }
void Lease::leave() { parts_->lease.leave(); }

std::map<std::string, int64_t> Lease::claims() const {
  std::map<std::string, int64_t> claims;
  for (const lease::Claim& claim : parts_->lease.claims()) claims[claim.uuid] = claim.bytes.count();
  return claims;
}

void Lease::release() {
  if (parts_) parts_->lease.release();
}

void Lease::resize(int64_t memory) { throw_if_error(lease::resize_here(parts_->lease, Bytes(memory))); }

void Lease::renew(milliseconds expires) {
  throw_if_error(value_of(lease::Arbiter::open()).renew(parts_->lease, expires));
}

void Lease::share_with_children() { throw_if_error(parts_->lease.share_with_children()); }
int Lease::share_through_exec() { return value_of(parts_->lease.share_through_exec()); }

Choice::Choice(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Choice::~Choice() { release(); }
Choice::Choice(Choice&&) noexcept = default;

Choice& Choice::operator=(Choice&& other) noexcept {
  if (this != &other) {
    release();
    parts_ = std::move(other.parts_);
  }
  return *this;
}

const std::vector<std::string>& Choice::uuids() const { return parts_->uuids; }
std::vector<int> Choice::ordinals() const { return value_of(lease::ordinals_here(parts_->uuids)); }
std::optional<int64_t> Choice::memory() const { return parts_->memory; }
Lease& Choice::lease() { return parts_->lease; }
const Lease& Choice::lease() const { return parts_->lease; }

std::vector<double> Choice::memory_fractions() const {
  std::vector<double> fractions;
  const std::vector<GPU> now = parts_->memory ? gpus() : std::vector<GPU>();
  for (const std::string& uuid : parts_->uuids) {
    double fraction = 1;
    for (const GPU& gpu : now)
      if (gpu.uuid == uuid && gpu.memory_total.value_or(0) > 0)
        fraction = std::min(1.0, static_cast<double>(lease::allocator_bytes(*parts_->memory)) /
                                     static_cast<double>(*gpu.memory_total));
    fractions.push_back(fraction);
  }
  return fractions;
}

void Choice::release() {
  if (!parts_) return;
  parts_->shown.end();
  parts_->lease.release();
}

Choice auto_choice(const ChoiceRequest& request) {
  const bool exclusive = request.exclusive.value_or(false);
  std::optional<Bytes> memory = bytes_of(request.memory);
  if (!memory && !exclusive) memory = lease::kMark;
  return ChoiceParts::choice(ChoiceParts::lease(take(request, memory, exclusive)), request.memory);
}

Lease take_lease(const ChoiceRequest& request) {
  return ChoiceParts::lease(take(request, bytes_of(request.memory), request.exclusive));
}

Lease adopt_lease(std::optional<int> descriptor) {
  return ChoiceParts::lease(value_of(lease::adopt_here(descriptor)));
}

}  // namespace innkeeper
