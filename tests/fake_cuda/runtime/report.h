// Reports of the fake: violations of CUDA's rules by its callers, and a trace of the calls.
//
// A violation is printed on standard error, counted, and makes the process end with kViolationStatus instead
// of its own status: a test that passes by luck fails. FAKE_CUDA_ABORT=1 aborts the process at the violation.
#pragma once

#include <string>

namespace fake_cuda {

inline constexpr int kViolationStatus = 86;

void say(const char* format, ...) __attribute__((format(printf, 1, 2)));
void violation(const char* format, ...) __attribute__((format(printf, 1, 2)));

long violations();
std::string last_violation();
// A test that provokes violations takes them back.
void forget_violations();

bool tracing();  // FAKE_CUDA_TRACE=1

}  // namespace fake_cuda
