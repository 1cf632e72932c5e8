// A period has two clocks. The host launches its operators one after the other, and a node runs their kernels
// in that order, none before it is launched. Where the host is slower, the node is idle meanwhile, and copies
// hide behind that time as behind kernels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

namespace innkeeper::plan {

class TwoClocks {
 public:
  // `host`: time in which the host launches each step, from the launch of the step before. Empty: unknown.
  explicit TwoClocks(std::span<const double> host) : host_(host) {}

  // The node is ready for the next step, this one, at `ready`. Returns when its kernels start.
  double start(size_t step, double ready) {
    if (host_.empty()) return ready;
    launched_ += host_[step];
    return std::max(launched_, ready);
  }

 private:
  const std::span<const double> host_;
  double launched_ = 0;
};

}  // namespace innkeeper::plan
