// SplitMix64, by S. Vigna: every bit of the result depends on every bit of the number. Not for cryptography.
#pragma once

#include <cstdint>

namespace innkeeper {

// The distance between the states of the generator: splitmix64(seed + i * kSplitMix64Step) is its i-th draw.
inline constexpr uint64_t kSplitMix64Step = 0x9e3779b97f4a7c15;

constexpr uint64_t splitmix64(uint64_t number) {
  number += kSplitMix64Step;
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9;
  number = (number ^ (number >> 27)) * 0x94d049bb133111eb;
  return number ^ (number >> 31);
}

}  // namespace innkeeper
