// Makes a lease anew that a logout has removed (lease/logout.h), for those who look at it again and again.
#pragma once

#include <chrono>
#include <utility>

#include "lease/arbiter.h"
#include "lease/here.h"
#include "lease/logout.h"

namespace innkeeper::keep {

class Restore {
 public:
  enum class Found : uint8_t { nothing, made_anew, lost, still_lost };

  // How often look() is to be called where is_needed().
  static constexpr std::chrono::milliseconds kPeriod{1000};

  explicit Restore(const lease::Directory& directory)
      : needed_(!lease::removed_at_logout(directory).empty()) {}
  bool is_needed() const { return needed_; }

  // Where others have its GPUs by now it may have them back later: that is tried less often. Takes some
  // milliseconds, where it was lost.
  Found look(lease::Lease& lease) {
    if (!needed_ || Clock::now() < next_) return Found::nothing;
    Found found = Found::nothing;
    if (lease.lost()) {
      const bool made = lease::restore_here(lease).ok();
      found = made ? Found::made_anew : std::exchange(told_, true) ? Found::still_lost : Found::lost;
      if (made) told_ = false;
    }
    next_ = Clock::now() + (told_ ? kPause : kPeriod);
    return found;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kPause{5000};

  const bool needed_;
  bool told_ = false;
  Clock::time_point next_{};
};

}  // namespace innkeeper::keep
