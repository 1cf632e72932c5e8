// Bytes that tests move, and find again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace innkeeper::test {

using Contents = std::vector<unsigned char>;

// Bytes that tell blocks, versions and offsets apart, and are never poison.
inline Contents pattern(size_t size, uint64_t version) {
  Contents contents(size);
  uint64_t state = version * 0x9E3779B97F4A7C15u + 1;
  for (unsigned char& byte : contents) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<unsigned char>((state >> 33) % 255);
  }
  return contents;
}

}  // namespace innkeeper::test
