// Restores a lease whose file a logout has removed (lease/logout.h), and detects that another process has
// ended a lease. For processes that check this repeatedly.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/status.h"
#include "lease/here.h"

namespace innkeeper::keep {

class Restore {
 public:
  enum class Found : uint8_t {
    nothing,
    restored,
    lost,        // The file is lost and not restored yet; why() gives the reason.
    still_lost,  // As `lost`, but reported before.
    ended,       // Released by another process, removed, or expired. Reported once.
  };

  // Checks at most once a second, and after a failure less often, because other leases may end later. Costs
  // two calls of stat(); a restoration takes milliseconds.
  Found look(lease::Lease& lease) {
    if (Clock::now() < next_) return Found::nothing;
    Found found = Found::nothing;
    if (lease.lost()) {
      const bool told = !why_.ok();
      why_ = lease::restore_here(lease);
      found = why_.ok() ? Found::restored : told ? Found::still_lost : Found::lost;
    } else if (!ended_ && lease.held() && !lease.intact()) {
      ended_ = true;
      found = Found::ended;
    }
    next_ = Clock::now() + (why_.ok() ? kPeriod : kPause);
    return found;
  }
  // The reason for the last failure.
  const Status& why() const { return why_; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kPeriod{1000};
  static constexpr std::chrono::milliseconds kPause{5000};

  Status why_;
  bool ended_ = false;
  Clock::time_point next_{};
};

}  // namespace innkeeper::keep
