// Checks that stay on in release builds. A failed check is a bug of ours: it prints its place and aborts.
// Memory that is no longer accounted for would turn into wrong numbers.
#pragma once

#include <string>
#include <string_view>

namespace innkeeper::detail {

[[noreturn]] void check_failed(const char* file, int line, const char* condition, std::string_view what);

}  // namespace innkeeper::detail

#define IK_CHECK(condition, ...) \
  do { \
    if (!(condition)) [[unlikely]] \
      ::innkeeper::detail::check_failed(__FILE__, __LINE__, #condition, std::string_view(__VA_ARGS__)); \
  } while (false)
