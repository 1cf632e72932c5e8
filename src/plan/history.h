// The last operators of one program, from its thread's access stream (src/trace/stream.h): the blocks that
// they touched, in order, with births and deaths.
//
// A block's name is the ordinal of its first touch. So a repeated step of a loop touches blocks with the same
// names, or, if the loop makes new ones each time, with names that are greater by the loop's births.
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
  // Deaths after this operator, and later ones.
  std::span<const Death> deaths_from(int64_t index) const;
  int64_t births() const { return births_; }

  // Whether `later` repeats `earlier`: with the same blocks, or with new ones in their place.
  bool repeats(int64_t later, int64_t earlier) const;

  static uint64_t key_of(uint64_t shape, Name eldest);

  // Operators that are kept at least, unless their touches exceed kMostTouches.
  static constexpr size_t kKept = size_t{1} << 18;
  static constexpr size_t kMostTouches = size_t{1} << 22;

 private:
  // Operators of a part. Parts never move, and the oldest is dropped as a whole.
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
  int64_t dropped_ = 0;  // Number of parts dropped so far.
  int64_t end_ = 0;
  size_t touched_ = 0;         // Touches in the parts.
  std::vector<Death> deaths_;  // By operator.
  size_t first_death_ = 0;     // First death behind an operator that is kept.
  int64_t births_ = 0;
};

}  // namespace innkeeper::plan
