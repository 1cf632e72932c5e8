// What a program has a use for at each node, so that others may have the rest: what its period wants, be it
// planned or one that fits; or, where it has no period, what it used of late.
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

// By node: the most bytes that are alive at a time there, of the blocks that the last so many operators
// touch; each from its first touch among those on.
std::array<Bytes, kMaxNodes> working_set(const History& history, int64_t operators);

class Wants {
 public:
  using ByNode = std::array<Bytes, kMaxNodes>;
  static constexpr Bytes kUnknown{-1};  // the program is too new
  Wants() { bytes_.fill(kUnknown); }

  Bytes at(NodeId node) const { return bytes_[index_of(node)]; }
  bool changed() { return std::exchange(changed_, false); }  // Changed since the last call.

  // In a period of so many operators, which is known now. That holds also when the program leaves it,
  void follow(const ByNode& wanted, int64_t length);
  // unless the engine has to evict while none is known, and none is found for some time.
  void evicted_without_a_period(const History& history);
  // While no period is known it is guessed now and then, and the less often the longer that lasts. `beyond`:
  // how many of the bytes that are used at a node are kept at which other one.
  using Beyond = std::function<std::pair<NodeId, Bytes>(NodeId, Bytes)>;
  bool is_due(const History& history) const { return history.end() >= guesses_at_; }
  void guess(const History& history, const Beyond& beyond);

 private:
  static constexpr int64_t kFirst = 256;  // operators until the first guess, and to the next one
  static constexpr int kMostDoubled = 8;  // times
  static constexpr int64_t kKept = 1024;  // operators, or
  static constexpr int64_t kTimes = 4;    // so many lengths of the period: what it wanted counts so long
  static constexpr int64_t kLooked = 8192;
  static constexpr int64_t kSame = 4;  // one part in so many less or more is no change

  ByNode bytes_;
  int64_t length_ = 0;  // Length of the last known period.
  int64_t guesses_at_ = kFirst;
  int guesses_ = 0;  // Guesses since then.
  bool changed_ = false;
};

}  // namespace innkeeper::plan
