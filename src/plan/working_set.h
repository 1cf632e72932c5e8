// The working set of a program at each node, by which other programs know how much is left for them. A
// program whose period is known has its period's working set, whether the period is planned or fits. The
// working set of a program without a period is estimated from its last operators.
//
// Thread safety: none; the planner's owner guards it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/types.h"
#include "plan/history.h"

namespace innkeeper::plan {

// Most bytes that were alive at once, per node, of the blocks that the last `operators` operators touch. A
// block counts from its first touch among them to its death. O(touches of those operators).
std::array<Bytes, kMaxNodes> working_set_of_last(const History& history, int64_t operators);

class WorkingSet {
 public:
  using ByNode = std::array<Bytes, kMaxNodes>;
  static constexpr Bytes kUnknown{-1};  // The program is too new.
  WorkingSet() { bytes_.fill(kUnknown); }

  Bytes at(NodeId node) const { return bytes_[index_of(node)]; }
  bool changed() { return std::exchange(changed_, false); }  // Changed since the last call.

  // A period of `length` operators with this working set is known. It holds also after the program left it.
  void follow(const ByNode& working_set, int64_t length);
  // The engine evicted while no period is known. If none is found for some time, an estimate is due.
  void evicted_without_a_period(const History& history);
  // `beyond`: given a node and the bytes used there, the node that keeps those beyond its free space, and
  // their number.
  using Beyond = std::function<std::pair<NodeId, Bytes>(NodeId, Bytes)>;
  // Estimates are due while no period is known, ever more rarely.
  bool is_estimate_due(const History& history) const { return history.end() >= next_estimate_; }
  void estimate(const History& history, const Beyond& beyond);

 private:
  static constexpr int64_t kFirst = 256;  // Operators before the first estimate and before the second one.
  static constexpr int kMostDoubled = 8;  // Number of times that this distance doubles.
  // A left period's working set counts for kTimes lengths of the period, or kTimes * kKept operators if that
  // is more.
  static constexpr int64_t kKept = 1024;
  static constexpr int64_t kTimes = 4;
  static constexpr int64_t kLooked = 8192;  // Operators that an estimate reads.
  static constexpr int64_t kSame = 4;       // An estimate within 1/4 of the one before counts as no change.

  ByNode bytes_;
  int64_t length_ = 0;              // Length of the last known period.
  int64_t next_estimate_ = kFirst;  // Operator at which the next estimate is due.
  int estimates_ = 0;               // Estimates since a period was known.
  bool changed_ = false;
};

}  // namespace innkeeper::plan
