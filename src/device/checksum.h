// A 64-bit checksum against bytes that come back changed from a disk. Not against an adversary.
#pragma once

#include <cstddef>
#include <cstdint>

namespace innkeeper {

// Of a whole buffer, or of its parts in order: each part takes the checksum of those before it. The value
// depends on how the buffer is cut and on the build, so it must not leave the process. XXH3 where its header
// was there at build time.
uint64_t checksum(const void* data, size_t size, uint64_t before = 0);

// What checksum() is without XXH3: 8 bytes a step, multiplied and rotated.
uint64_t portable_checksum(const void* data, size_t size, uint64_t before = 0);

}  // namespace innkeeper
