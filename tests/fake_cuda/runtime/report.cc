#include "runtime/report.h"

#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "runtime/settings.h"

namespace fake_cuda {
namespace {

std::atomic<long> count{0};

std::string& last() {
  static auto& text = *new std::string;
  return text;
}

void tell(const char* kind, const char* format, va_list list) {
  char line[512];
  vsnprintf(line, sizeof line, format, list);
  fprintf(stderr, "fake_cuda: %s%s\n", kind, line);
  if (*kind != 0) last() = line;
}

// Runs after all other destructors: the runtime is loaded before its users.
struct AtTheEnd {
  ~AtTheEnd() {
    if (count == 0) return;
    fprintf(stderr, "fake_cuda: %ld violations; the last: %s\n", count.load(), last().c_str());
    fflush(nullptr);
    _exit(kViolationStatus);
  }
} at_the_end;

}  // namespace

void say(const char* format, ...) {
  va_list list;
  va_start(list, format);
  tell("", format, list);
  va_end(list);
}

void violation(const char* format, ...) {
  ++count;
  va_list list;
  va_start(list, format);
  tell("violation: ", format, list);
  va_end(list);
  if (settings().abort) abort();
}

long violations() { return count; }
std::string last_violation() { return last(); }
void forget_violations() { count = 0; }
bool tracing() { return settings().trace; }

}  // namespace fake_cuda
