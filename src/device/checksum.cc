#include "device/checksum.h"

#include <bit>
#include <cstring>

#if __has_include(<xxhash.h>)
#define XXH_INLINE_ALL
#include <xxhash.h>
#define IK_HAS_XXHASH 1
#else
#define IK_HAS_XXHASH 0
#endif

namespace innkeeper {

uint64_t portable_checksum(const void* data, size_t size, uint64_t before) {
  constexpr uint64_t kFactor =
      0x9E3779B97F4A7C15u;  // The factor is odd, so each step is reversible: no change in one word is lost.
  const auto* bytes = static_cast<const unsigned char*>(data);
  uint64_t sum = before ^ (size * kFactor);
  for (; size >= 8; bytes += 8, size -= 8) {
    uint64_t word;
    std::memcpy(&word, bytes, 8);
    sum = std::rotl((sum ^ word) * kFactor, 29);
  }
  uint64_t rest = 0;
  if (size > 0) std::memcpy(&rest, bytes, size);
  sum = (sum ^ rest) * kFactor;
  sum = (sum ^ (sum >> 32)) * kFactor;
  return sum ^ (sum >> 29);
}

uint64_t checksum(const void* data, size_t size, uint64_t before) {
#if IK_HAS_XXHASH
  return XXH3_64bits_withSeed(data, size, before);
#else
  return portable_checksum(data, size, before);
#endif
}

}  // namespace innkeeper
