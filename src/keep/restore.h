// Restores a lease whose file a logout has removed (lease/logout.h). For processes that check this
// repeatedly.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/status.h"
#include "lease/here.h"

namespace innkeeper::keep {

class Restore {
 public:
  enum class Found : uint8_t { nothing, restored, lost, still_lost };

  // Checks at most once a second, and after a failure less often, because other leases may end later. Costs
  // one fstat(); a restoration takes milliseconds.
  Found look(lease::Lease& lease) {
    if (Clock::now() < next_) return Found::nothing;
    Found found = Found::nothing;
    if (lease.lost()) {
      const bool told = !why_.ok();
      why_ = lease::restore_here(lease);
      found = why_.ok() ? Found::restored : told ? Found::still_lost : Found::lost;
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
  Clock::time_point next_{};
};

}  // namespace innkeeper::keep
