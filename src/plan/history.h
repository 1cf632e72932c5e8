// What a planner remembers of its thread's access stream (src/trace/stream.h): what operators touched, in
// order, with births and deaths. One program's: who uses the device in turn, as a forward and a backward pass
// do.
//
// A block is named by the ordinal of its first touch. So the same step of a loop, done again, touches blocks
// with the same names, or, where it makes them anew each time, with names that are later by as many as the
// loop makes.
//
// Thread safety: none; Engine guards it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"

namespace innkeeper::plan {

using Name = int64_t;  // from 1 on

struct Touch {
  Name block = 0;
  Bytes size{0};
  bool write = false;
  bool stays = false;  // pinned by the user: it never leaves
  bool pure = false;   // a result, the same whenever its operator reads the same
};

class History {
 public:
  struct Operator {
    uint64_t shape = 0;  // of node, sizes and writes: equal where operators may be the same
    uint64_t key = 0;    // of the shape and the eldest block: equal where operators are likely to be the same
    size_t first = 0;    // of its touches
    int64_t births = 0;  // blocks that were named before it ended, its results too
    NodeId node = kNoNode;
  };
  struct Death {
    Name block = 0;
    int64_t after = 0;  // the operator that ended last before it
  };

  Name name() { return ++births_; }
  void ended(NodeId node, std::span<const Touch> touches);
  void died(Name block) { deaths_.push_back({block, end() - 1}); }

  // Operators are numbered from 0 on; those from begin() to end() are kept.
  int64_t begin() const { return dropped_; }
  int64_t end() const { return dropped_ + static_cast<int64_t>(operators_.size()); }
  const Operator& at(int64_t index) const { return operators_[static_cast<size_t>(index - dropped_)]; }
  std::span<const Touch> touches(int64_t index) const;
  // Those after this operator, and later.
  std::span<const Death> deaths_from(int64_t index) const;
  int64_t births() const { return births_; }

  // Is `later` what `earlier` was, done once more: the same blocks, or new ones in their place?
  bool repeats(int64_t later, int64_t earlier) const;

  static uint64_t key_of(uint64_t shape, Name eldest);

  // At least so many operators are kept, unless they touch very many blocks each.
  static constexpr size_t kKept = size_t{1} << 18;
  static constexpr size_t kMostTouches = size_t{1} << 22;

 private:
  void drop_oldest();

  std::vector<Operator> operators_;
  std::vector<Touch> touches_;
  std::vector<Death> deaths_;  // in order
  int64_t dropped_ = 0;        // operators
  size_t dropped_touches_ = 0;
  int64_t births_ = 0;
};

}  // namespace innkeeper::plan
