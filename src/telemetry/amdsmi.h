// AMD SMI: finds, loads and starts the library (session.h). Every query passes through one function, ask().
//
// The library is started once in a process and never stopped. In ROCm 6 it does not count its starts (newer
// sources do). Stopping ours would therefore stop it for other code in the process (PyTorch uses it too)
// during its calls. If other code stops it, we start it again. The GPUs are those found at the start; a GPU
// that is plugged in later is not seen. The library reads files of the kernel, and starting it loads
// neither HIP nor ROCR.
//
// Handles are addresses in the library. Each snapshot reads them again.
#pragma once

#include <string>
#include <type_traits>

#include "telemetry/amdsmi_abi.h"
#include "telemetry/reading.h"
#include "telemetry/session.h"

namespace innkeeper::telemetry::amdsmi {

// Functions of the library; nullptr: it lacks the function.
struct Library {
#define IK_AMDSMI_MEMBER(member, name, type) std::add_pointer_t<type> member = nullptr;
  IK_AMDSMI_FUNCTIONS(IK_AMDSMI_MEMBER)
#undef IK_AMDSMI_MEMBER
  Version number = {};  // Version of the library; all 0: unknown.
};

// Calls a function; one that the library lacks returns kNotSupported.
template <class... Parameters, class... Arguments>
Code ask(Code (*function)(Parameters...), Arguments... arguments) {
  return function == nullptr ? kNotSupported : function(arguments...);
}

Outcome outcome_of(Code code);
// Returns text such as "amdsmi_get_power_info: An I/O error (12)".
std::string describe(const Library& library, const char* question, Code code);

template <class T>
Reading<T> no_reading(const Library& library, const char* question, Code code) {
  const Outcome outcome = outcome_of(code);
  return Reading<T>::none(outcome,
                          outcome == Outcome::not_supported ? "" : describe(library, question, code));
}

extern Sessions<Library> sessions;

}  // namespace innkeeper::telemetry::amdsmi
