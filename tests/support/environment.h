// Numbers that a test takes from the environment, to replay a failure or to run longer.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

namespace innkeeper::test {

inline uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

}  // namespace innkeeper::test
