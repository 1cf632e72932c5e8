// The running driver library of this process, whichever vendor's: starting it, and keeping it for as long as
// a caller asks.
//
// A Session is one start of the library in one process. It is not good across fork() (a driver ties it to the
// process), so each is keyed by its pid: the child starts its own and never touches the parent's, not even to
// stop it. No lock is taken here, so none is held across a call of the library, and none can be found held
// after fork().
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "telemetry/snapshot.h"

namespace innkeeper::telemetry {

// Why a library could not be started: one line with the cure. Trouble::none: it could.
struct Failure {
  Trouble trouble = Trouble::none;
  std::string text;
};

// Sessions are never freed: a thread may hold the address of one that was replaced meanwhile, and there are
// few. `next` keeps them all reachable.
template <class Library>
class Session {
 public:
  using Clock = std::chrono::steady_clock;

  void give_back() {
    const bool last = uses.fetch_sub(1) == 1;
    if (last && stop != nullptr && pid == getpid() && !gone.load()) stop(library);
  }
  // Counts a use, unless the session has ended.
  bool join() {
    int present = uses.load();
    while (present > 0) {
      if (uses.compare_exchange_weak(present, present + 1)) return true;
    }
    return false;
  }
  // A start may take seconds where the driver has to wake the cards: at most one hundredth of the time goes
  // there.
  bool wants_restart() const {
    constexpr int kPausePerStart = 100;
    constexpr Clock::duration kLeastPause = std::chrono::milliseconds(500);
    if (!suspect.load() || stop == nullptr) return false;
    return Clock::now() - started > std::max(kLeastPause, start_time * kPausePerStart);
  }

  Library library;
  void (*stop)(const Library&) = nullptr;
  pid_t pid = 0;
  Clock::time_point started = {};
  Clock::duration start_time = {};
  std::atomic<int> uses = 1;  // the slot's own is one; at 0 the library was, or is being, stopped
  std::atomic<bool> suspect = false;
  std::atomic<bool> gone = false;  // stopped by other code
  Session* next = nullptr;
};

// A counted use of the process's session: the library is not stopped while one lives.
template <class Library>
class Use {
 public:
  Use() = default;
  explicit Use(Session<Library>* session) : session_(session) {}
  Use(Use&& other) noexcept : session_(std::exchange(other.session_, nullptr)) {}
  Use& operator=(Use&& other) noexcept {
    std::swap(session_, other.session_);
    return *this;
  }
  ~Use() {
    if (session_ != nullptr) session_->give_back();
  }
  explicit operator bool() const { return session_ != nullptr; }
  const Library& library() const { return session_->library; }
  // Something was wrong that starting again may cure: the next start_or_join() does, but not all the time.
  void suspect() const { session_->suspect.store(true); }
  // Other code stopped the library as often as it was started: our start is not there to be undone.
  void gone() const { session_->gone.store(true); }

 private:
  Session<Library>* session_ = nullptr;
};

template <class Library>
struct Start {
  Use<Library> use;  // none: why, in `failure`
  Failure failure;
};

// The sessions of one library, for the life of the process. Thread safe, also after fork().
template <class Library>
class Sessions {
 public:
  // `start` loads the library, finds its functions and starts it. `stop` undoes one start; nullptr: the
  // library is not to be stopped, so a start is for the life of the process and is never made again.
  constexpr Sessions(Failure (*start)(Library&), void (*stop)(const Library&)) : start_(start), stop_(stop) {}

  // This process's session; started if there is none. `afresh`: one other than the present one.
  Start<Library> start_or_join(bool afresh = false) {
    for (;;) {
      Session<Library>* present = slot_.load();
      const bool ours = present != nullptr && present->pid == getpid();
      if (ours && !afresh && !present->wants_restart() && present->join())
        return {.use = Use<Library>(present), .failure = {}};
      auto fresh = std::make_unique<Session<Library>>();
      if (Failure failure = begin(*fresh); failure.trouble != Trouble::none)
        return {.use = {}, .failure = std::move(failure)};
      if (!slot_.compare_exchange_strong(present, fresh.get())) {
        if (stop_ != nullptr) stop_(fresh->library);  // another thread was faster: use its session
        afresh = false;
        continue;
      }
      if (ours) present->give_back();
      Session<Library>* session = fresh.release();
      remember(session);
      return {.use = Use<Library>(session), .failure = {}};
    }
  }

  // Lets go of this process's session; it ends when its last use does.
  void end() {
    Session<Library>* session = slot_.exchange(nullptr);
    if (session != nullptr && session->pid == getpid()) session->give_back();
  }

 private:
  Failure begin(Session<Library>& session) {
    session.stop = stop_;
    session.pid = getpid();
    session.uses = 2;  // the slot's and the caller's
    const auto before = Session<Library>::Clock::now();
    Failure failure = start_(session.library);
    session.started = Session<Library>::Clock::now();
    session.start_time = session.started - before;
    return failure;
  }
  void remember(Session<Library>* session) {
    session->next = all_.load();
    while (!all_.compare_exchange_weak(session->next, session)) {
    }
  }

  Failure (*start_)(Library&);
  void (*stop_)(const Library&);
  std::atomic<Session<Library>*> slot_ = nullptr;  // the process's session (or, after fork, its parent's)
  std::atomic<Session<Library>*> all_ = nullptr;   // only ever pushed to
};

}  // namespace innkeeper::telemetry
