// FNV-1a, 64 bits: finds equal texts, and shows that a line was written whole. Not against an adversary.
#pragma once

#include <cstdint>
#include <string_view>

namespace innkeeper::queue {

inline uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace innkeeper::queue
