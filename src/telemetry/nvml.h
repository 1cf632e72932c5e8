// The running NVML of this process: finding and loading the library, starting it, keeping it for as long as
// somebody asks, and the one funnel that every question goes through.
//
// A Session is one start of the library in one process. It is not good across fork() (the driver ties it to
// the process), so each is keyed by its pid: the child starts its own and never touches the parent's, not
// even to shut it down. No lock is taken here, so none is held across a call of the library, and none can be
// found held after fork().
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <string>
#include <utility>

#include "telemetry/nvml_abi.h"
#include "telemetry/reading.h"
#include "telemetry/snapshot.h"

namespace innkeeper::telemetry::nvml {

// What the library offers; nullptr for what it lacks (older than the function).
struct Library {
#define IK_NVML_MEMBER(member, name, type) std::add_pointer_t<type> member = nullptr;
  IK_NVML_FUNCTIONS(IK_NVML_MEMBER)
#undef IK_NVML_MEMBER
  std::string path;  // of the file, as far as it can be told
};

// The funnel: a function that the library lacks answers kFunctionNotFound, like one that the driver lacks.
template <class... Parameters, class... Arguments>
Code ask(Code (*function)(Parameters...), Arguments... arguments) {
  return function == nullptr ? kFunctionNotFound : function(arguments...);
}

Outcome outcome_of(Code code);
// "nvmlDeviceGetName: GPU is lost (15)".
std::string describe(const Library& library, const char* question, Code code);

template <class T>
Reading<T> no_reading(const Library& library, const char* question, Code code) {
  const Outcome outcome = outcome_of(code);
  return Reading<T>::none(outcome,
                          outcome == Outcome::not_supported ? "" : describe(library, question, code));
}

// Text that a driver wrote: it may lack its end, and hold anything.
std::string clean_text(const char* text, size_t capacity);

class Session;

// A counted use of the process's session: the library is not shut down while one lives.
class Use {
 public:
  Use() = default;
  explicit Use(Session* session) : session_(session) {}
  Use(Use&& other) noexcept : session_(std::exchange(other.session_, nullptr)) {}
  Use& operator=(Use&& other) noexcept {
    std::swap(session_, other.session_);
    return *this;
  }
  ~Use();
  explicit operator bool() const { return session_ != nullptr; }
  const Library& library() const;
  // Something was wrong that starting anew may cure: the next start_or_join() does, but not all the time.
  void suspect() const;
  // Somebody else shut the library down as often as it was started: our start is not there to be undone.
  void gone() const;

 private:
  Session* session_ = nullptr;
};

struct Start {
  Use use;  // none: why, in `trouble` and `text` (one line with the cure)
  Trouble trouble = Trouble::none;
  std::string text;
};

// This process's session; started if there is none. `afresh`: one other than the present one.
Start start_or_join(bool afresh = false);

// Lets go of this process's session; it ends when its last use does.
void end_session();

}  // namespace innkeeper::telemetry::nvml
