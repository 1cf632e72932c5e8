// Predicts a replica's next use from its earlier returns. A program that repeats a period uses each block
// again after about the same time as in earlier periods.
//
// A replica arrives, is used for some time (its stay), and leaves; the gap is the time between its last use
// and its return. Of the last two gaps the shorter counts. It counts once this stay is as long as the last
// one: until then the replica may still be in use.
//
// The object is small, since each replica has one: spans are stored to one part in a thousand. Times are of
// the engine's clock. A value: not thread-safe.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace innkeeper {

class ReuseHistory {
 public:
  // The replica is present from `now` on; `last_use` is its last use during its previous stay.
  void came(uint64_t last_use, uint64_t now) {
    if (came_ != 0) {
      gap_before_ = gap_;
      gap_ = Span(now - std::min(last_use, now));
    }
    came_ = std::max<uint32_t>(static_cast<uint32_t>(now), 1);
  }
  void left(uint64_t last_use) { stay_ = Span(stay_until(last_use)); }
  // Returns the predicted time of its next use, given that it was last used at `last_use`; 0: no prediction.
  uint64_t next_use(uint64_t last_use) const {
    const uint64_t gap = std::min(gap_.length(), gap_before_.length());
    if (gap == 0) return 0;
    if (stay_.length() < gap && stay_until(last_use) < stay_.length()) return 0;
    return last_use + gap;
  }

 private:
  // A length with 5 bits of exponent and 11 bits of significand, rounded down.
  class Span {
   public:
    Span() = default;
    explicit Span(uint64_t length) {
      const int drop = std::max(0, static_cast<int>(std::bit_width(length)) - kDigits);
      bits_ = drop >= (1 << 5) ? UINT16_MAX : static_cast<uint16_t>(length >> drop | drop << kDigits);
    }
    uint64_t length() const {
      constexpr uint16_t kNumber = (1 << kDigits) - 1;
      return static_cast<uint64_t>(bits_ & kNumber) << (bits_ >> kDigits);
    }

   private:
    static constexpr int kDigits = 11;
    uint16_t bits_ = 0;
  };

  uint64_t stay_until(uint64_t last_use) const {
    const auto stay = static_cast<int32_t>(static_cast<uint32_t>(last_use) - came_);
    return static_cast<uint64_t>(std::max(stay, 0));  // Negative: not used since it arrived.
  }

  uint32_t came_ = 0;  // 0: never arrived; the low half of the clock is enough to compute a stay.
  Span gap_, gap_before_, stay_;
};

}  // namespace innkeeper
