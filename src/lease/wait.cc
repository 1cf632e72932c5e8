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

// How long after an event that did not help to look again: a dead holder's lock goes a moment after the
// event.
constexpr milliseconds kAfterEvent{20};
// Without events.
constexpr milliseconds kPause{1000};
// After an event each place ahead has so long to take what has come free.
constexpr milliseconds kEachAhead{2};
// How often a waiting caller is asked whether it has given up.
constexpr milliseconds kAsk{100};
// At the back: between two looks at the guard, by how far that is from the first; and how many of them there
// are within the caller's limit.
constexpr milliseconds kEachLook{10}, kLook{800};
constexpr int kLooksAtLeast = 10;

// What those ahead do not want may be had from the back, too. An attempt takes some 10 us for each file; so
// all who wait there take a twentieth of a processor for theirs, however many they are.
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

// Pauses for a part of the time that is left. False: there is none.
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
  // Once more at once, so that no event since the first attempt is missed.
  if (!watch_) {
    watch_.emplace(directory_);
    return true;
  }
  // An event may come before what it tells of: look again soon, once.
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
