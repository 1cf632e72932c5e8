#include "lease/wait.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>

#include "base/clock.h"
#include "lease/live_file.h"
#include "lease/process.h"

namespace innkeeper::lease {
namespace {

using std::chrono::milliseconds;

// Time until the next look after an event that did not help: a dead holder's lock is released a moment
// after the event.
constexpr milliseconds kAfterEvent{20};
// Period of the looks without events.
constexpr milliseconds kPause{1000};
// Time that each place ahead has after an event to take the freed space.
constexpr milliseconds kEachAhead{2};
// Period at which a waiting caller is asked whether it has given up.
constexpr milliseconds kAsk{100};
// At the back: pause between two looks at the guard, per place ahead (kEachLook), and its upper bound
// (kLook). kLooksAtLeast is the least number of looks within the caller's limit.
constexpr milliseconds kEachLook{10}, kLook{800};
constexpr int kLooksAtLeast = 10;

// The back may also take space that the places ahead do not need. An attempt takes some 10 us for each file.
// At this period all places at the back together take a twentieth of a processor, whatever their number.
milliseconds until_attempt(const Turn& turn) { return turn.ahead * milliseconds(std::max(50, turn.files)); }

void pause_for(milliseconds part) {
  (void)poll(nullptr, 0, static_cast<int>(std::max(part, milliseconds(1)).count()));
}

// A place ahead. It is in the line while its process shows that it waits.
class Guard {
 public:
  Guard(const Directory& directory, const std::string& id)
      : file_([&] { return openat(directory.fd(), ("l" + id).c_str(), kReadFlags); }) {}
  bool is_waiting() const {
    const std::optional<Entry> entry = file_.valid() ? read_entry(file_.fd()) : std::nullopt;
    return entry && entry->record.kind == Kind::waiting &&
           !is_lost(*entry, machine_clock_ns(), own_pid_namespace());
  }

 private:
  OpenFile file_;
};

}  // namespace

Wait::Wait(const Directory& directory, const Request& request, const std::function<bool()>& cancelled)
    : directory_(directory), request_(request), cancelled_(cancelled) {}

milliseconds Wait::so_far() const {
  return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin_);
}

// Pauses for a part of the remaining time. False: no time is left.
bool Wait::sleep(milliseconds part, const std::function<void(milliseconds)>& pause) {
  const milliseconds left = request_.wait_limit ? *request_.wait_limit - so_far() : milliseconds::max();
  const bool given_up = cancelled_ && cancelled_();
  if (given_up || left <= milliseconds(0)) {
    gave_up_ = (given_up ? "given up after " : "waited ") + std::to_string(so_far().count()) + " ms";
    return false;
  }
  pause(std::min({part, left, cancelled_ ? kAsk : milliseconds::max()}));
  return true;
}

bool Wait::until_next(const Turn& turn, const LeaseFile* place) {
  if (place == nullptr || turn.guard.empty()) return in_front(turn);
  watch_.reset();
  return at_the_back(turn, *place);
}

bool Wait::in_front(const Turn& turn) {
  // The first pass tries again at once, so that no event since the first attempt is missed.
  if (!watch_) {
    watch_.emplace(directory_);
    return true;
  }
  // An event may arrive before the change that it reports: look again soon, once.
  milliseconds pause = event_ ? kAfterEvent : kPause;
  event_ = false;
  while (pause > milliseconds(0) && !event_) {
    const milliseconds from = so_far();
    if (!sleep(pause, [this](milliseconds part) { event_ = watch_->wait(part); })) return false;
    pause -= so_far() - from;
  }
  return !event_ || turn.ahead == 0 || sleep(turn.ahead * kEachAhead, pause_for);
}

bool Wait::at_the_back(const Turn& turn, const LeaseFile& place) {
  const Guard guard(directory_, turn.guard);
  const milliseconds limit = request_.wait_limit.value_or(milliseconds::max()) / kLooksAtLeast;
  const milliseconds each = std::max(milliseconds(1), std::min({kLook, turn.ahead * kEachLook, limit}));
  const milliseconds attempt_at = so_far() + std::min(until_attempt(turn), 2 * limit);
  milliseconds look_at = so_far() + each;
  while (so_far() < attempt_at) {
    if (!sleep(look_at - so_far(), pause_for)) return false;
    if (so_far() < look_at) continue;
    if (!guard.is_waiting() || !place.named()) return true;
    touch(place.file.fd());
    look_at += each;
  }
  return true;
}

}  // namespace innkeeper::lease
