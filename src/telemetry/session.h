// The running driver library of this process, for every vendor: starts it, and keeps it for as long as a
// caller needs it.
//
// A Session is one start of the library in one process. It is not valid across fork() (a driver ties it to
// the process), so each is keyed by its pid. The child starts its own and never touches the parent's, not
// even to stop it. The code takes no lock, so none is held across a call of the library, and none can be
// found held after fork().
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

// Reason for which a library could not be started: one line with the cure. Trouble::none: it was started.
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
  // A start may take seconds if the driver has to wake the GPUs: restarts take at most one
  // hundredth of the time.
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
  // Number of uses, of which the slot's own is one; 0: the library is stopped, or being stopped.
  std::atomic<int> uses = 1;
  std::atomic<bool> suspect = false;
  std::atomic<bool> gone = false;  // True: other code has stopped the library.
  Session* next = nullptr;
};

// A counted use of the process's session: the library is not stopped while a use lives.
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
  // Reports a problem that a restart may cure: the next start_or_join() restarts the library,
  // within its rate limit.
  void suspect() const { session_->suspect.store(true); }
  // Reports that other code has stopped the library as often as it was started: our start must not be undone.
  void gone() const { session_->gone.store(true); }

 private:
  Session<Library>* session_ = nullptr;
};

template <class Library>
struct Start {
  Use<Library> use;  // None: `failure` gives the reason.
  Failure failure;
};

// The sessions of one library, for the life of the process. Thread safe, also after fork().
template <class Library>
class Sessions {
 public:
  // `start` loads the library, finds its functions and starts it. `stop` undoes one start. nullptr: the
  // library must not be stopped, so a start lasts for the life of the process and is never repeated.
  constexpr Sessions(Failure (*start)(Library&), void (*stop)(const Library&)) : start_(start), stop_(stop) {}

  // Returns a use of this process's session, and starts one if there is none. `afresh`:
  // requires a new session.
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
        if (stop_ != nullptr) stop_(fresh->library);  // Another thread was faster; its session is used.
        afresh = false;
        continue;
      }
      if (ours) present->give_back();
      Session<Library>* session = fresh.release();
      remember(session);
      return {.use = Use<Library>(session), .failure = {}};
    }
  }

  // Releases this process's session; it ends with its last use.
  void end() {
    Session<Library>* session = slot_.exchange(nullptr);
    if (session != nullptr && session->pid == getpid()) session->give_back();
  }

 private:
  Failure begin(Session<Library>& session) {
    session.stop = stop_;
    session.pid = getpid();
    session.uses = 2;  // The slot's use and the caller's.
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
  std::atomic<Session<Library>*> slot_ = nullptr;  // Session of the process, or after fork() of its parent.
  std::atomic<Session<Library>*> all_ = nullptr;   // List of all sessions; only ever pushed to.
};

}  // namespace innkeeper::telemetry
