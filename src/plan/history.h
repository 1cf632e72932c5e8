// What a planner remembers of its thread's access stream (src/trace/stream.h): what operators touched, in
// order, with births and deaths. One program's: who uses the device in turn, as a forward and a backward pass
// do.
//
// A block is named by the ordinal of its first touch. So the same step of a loop, done again, touches blocks
// with the same names, or, where it makes them again each time, with names that are later by as many as the
// loop makes.
//
// Thread safety: none; Engine guards it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/types.h"

namespace innkeeper::plan {

using Name = int64_t;  // Counts from 1.

struct Touch {
  Name block = 0;
  Bytes size{0};
  bool write = false;
  bool stays = false;  // Pinned by the user: never evicted.
  bool pure = false;   // A result that has the same bits whenever its operator reads the same.
};

class History {
 public:
  struct Operator {
    uint64_t shape = 0;  // Hash of node, sizes and writes; equal operators have equal ones.
    uint64_t key = 0;    // Hash of the shape and the eldest block; finds candidates for a repetition.
    int64_t births = 0;  // Blocks named before the operator ended, its results included.
    uint32_t first = 0;  // Index of its first touch in its part of the history.
    float seconds = 0;   // Time of its kernels; 0: unknown.
    float host = 0;      // Time of the host since the operator before, seconds; 0: unknown.
    NodeId node = kNoNode;
  };
  struct Death {
    Name block = 0;
    int64_t after = 0;  // Operator that ended last before the death.
  };

  Name name() { return ++births_; }
  void ended(NodeId node, std::span<const Touch> touches, double seconds = 0, double host = 0);
  void died(Name block) { deaths_.push_back({block, end() - 1}); }

  // Operators are numbered from 0 on; those from begin() to end() are kept.
  int64_t begin() const { return dropped_ << kPartBits; }
  int64_t end() const { return end_; }
  const Operator& at(int64_t index) const { return part_of(index).operators[place_of(index)]; }
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
  // So many operators in turn: nothing moves while it grows, and what is oldest goes at once.
  static constexpr int kPartBits = 12;
  struct Part {
    std::array<Operator, size_t{1} << kPartBits> operators;
    std::vector<Touch> touches;
  };
  static size_t place_of(int64_t index) {
    return static_cast<size_t>(index) & ((size_t{1} << kPartBits) - 1);
  }
  const Part& part_of(int64_t index) const {
    return *parts_[static_cast<size_t>((index >> kPartBits) - dropped_)];
  }
  void begin_part();
  void drop_oldest();

  std::deque<std::unique_ptr<Part>> parts_;
  std::unique_ptr<Part> unused_;
  int64_t dropped_ = 0;  // parts
  int64_t end_ = 0;
  size_t touched_ = 0;         // touches in the parts
  std::vector<Death> deaths_;  // By operator.
  size_t first_death_ = 0;     // First death behind an operator that is kept.
  int64_t births_ = 0;
};

}  // namespace innkeeper::plan
