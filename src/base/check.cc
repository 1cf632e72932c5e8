#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace innkeeper::detail {

void check_failed(const char* file, int line, const char* condition, std::string_view what) {
  std::fprintf(stderr, "innkeeper: internal error at %s:%d: (%s) is false. %.*s\n", file, line, condition,
               static_cast<int>(what.size()), what.data());
  std::abort();
}

}  // namespace innkeeper::detail
