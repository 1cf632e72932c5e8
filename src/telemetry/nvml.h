// NVML: finds, loads and starts the library (session.h). Every query passes through one function, ask().
#pragma once

#include <string>
#include <type_traits>

#include "telemetry/nvml_abi.h"
#include "telemetry/reading.h"
#include "telemetry/session.h"

namespace innkeeper::telemetry::nvml {

// Functions of the library; nullptr: the library is older than the function.
struct Library {
#define IK_NVML_MEMBER(member, name, type) std::add_pointer_t<type> member = nullptr;
  IK_NVML_FUNCTIONS(IK_NVML_MEMBER)
#undef IK_NVML_MEMBER
  std::string path;  // Path of the library's file, as far as it is known.
};

// Calls a function; one that the library lacks returns kFunctionNotFound, as one that the driver lacks does.
template <class... Parameters, class... Arguments>
Code ask(Code (*function)(Parameters...), Arguments... arguments) {
  return function == nullptr ? kFunctionNotFound : function(arguments...);
}

Outcome outcome_of(Code code);
// Returns text such as "nvmlDeviceGetName: GPU is lost (15)".
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
