// NVML: finding and loading the library, starting it (session.h), and the one funnel that every question goes
// through.
#pragma once

#include <string>
#include <type_traits>

#include "telemetry/nvml_abi.h"
#include "telemetry/reading.h"
#include "telemetry/session.h"

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

// NVML counts its starts, so that each session may stop its own.
extern Sessions<Library> sessions;

}  // namespace innkeeper::telemetry::nvml
