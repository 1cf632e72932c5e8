// How fast a node's memory is, and its link to the host.
#pragma once

#include <cmath>

namespace innkeeper::plan {

// The bytes that a GPU's kernels touch while its link moves one. This many where the rates are unknown;
// GPUs on PCIe have 11 (an L4) to 80, GH200 has some 10.
inline constexpr double kSlower = 50;

// Bytes per second; 0: unknown.
struct Speed {
  double memory = 0;  // Bandwidth of kernels.
  double link = 0;    // Bandwidth of the link to the host, each way.
};

inline double slower(const Speed& speed) {
  const double ratio = speed.memory / speed.link;
  return std::isfinite(ratio) && ratio > 0 ? ratio : kSlower;
}

}  // namespace innkeeper::plan
