// AMD SMI: finding and loading the library, starting it (session.h), and the one funnel that every question
// goes through.
//
// It is started once in a process and never stopped: in ROCm 6 it does not count its starts (newer sources
// do), so stopping our own would take it away from other code in the process (PyTorch uses it too), while
// calls of theirs run. If other code stops it, we start it again. The cards are those that it found when
// it was started; one that is plugged in later is not seen. It reads files of the kernel's, and starting it
// loads no HIP and no ROCR.
//
// Handles are addresses in the library. They are taken again for each snapshot.
#pragma once

#include <string>
#include <type_traits>

#include "telemetry/amdsmi_abi.h"
#include "telemetry/reading.h"
#include "telemetry/session.h"

namespace innkeeper::telemetry::amdsmi {

// What the library offers; nullptr for what it lacks.
struct Library {
#define IK_AMDSMI_MEMBER(member, name, type) std::add_pointer_t<type> member = nullptr;
  IK_AMDSMI_FUNCTIONS(IK_AMDSMI_MEMBER)
#undef IK_AMDSMI_MEMBER
  Version number = {};  // all 0 if it cannot tell
};

// The funnel: a function that the library lacks answers kNotSupported.
template <class... Parameters, class... Arguments>
Code ask(Code (*function)(Parameters...), Arguments... arguments) {
  return function == nullptr ? kNotSupported : function(arguments...);
}

Outcome outcome_of(Code code);
// "amdsmi_get_power_info: An I/O error (12)".
std::string describe(const Library& library, const char* question, Code code);

template <class T>
Reading<T> no_reading(const Library& library, const char* question, Code code) {
  const Outcome outcome = outcome_of(code);
  return Reading<T>::none(outcome,
                          outcome == Outcome::not_supported ? "" : describe(library, question, code));
}

extern Sessions<Library> sessions;

}  // namespace innkeeper::telemetry::amdsmi
