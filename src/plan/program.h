// One period of what a program does again and again, with its blocks named so that the names hold in each
// period: what lasts by its name, what each period creates by its place among the period's births.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plan/history.h"
#include "plan/speed.h"

namespace innkeeper::plan {

struct Slot {
  // The name of a block that lasts; for another its name less the births before the period, below 1 where an
  // earlier period made it.
  int64_t number = 0;
  bool lasting = false;

  Name name(int64_t births_before) const { return lasting ? number : births_before + number; }
  int64_t key() const { return number * 2 + (lasting ? 1 : 0); }  // Equal slots have equal keys.
  // Periods ago that its block was made, where each makes so many.
  int64_t age(int64_t births) const;
  // As it is named so many periods later, or earlier.
  Slot later(int64_t periods, int64_t births) const {
    return {lasting ? number : number - periods * births, lasting};
  }
};

struct Program {
  struct Use {
    Slot slot;
    Bytes size{0};
    bool write = false;
    bool stays = false;
    bool pure = false;
  };
  struct Step {
    uint64_t shape = 0;
    size_t first = 0;    // Index of its first use.
    int64_t births = 0;  // Births in the period before the step ended.
    NodeId node = kNoNode;
    float seconds = 0;  // Time of its kernels; 0: unknown.
    float host = 0;     // Time in which the host launches it, seconds; 0: unknown.
  };
  struct Death {
    int64_t after = 0;  // Step that ends last before the death.
    Slot slot;
  };
  std::vector<Step> steps;
  std::vector<Use> uses;
  std::vector<Death> deaths;
  int64_t births = 0;  // Births per period.

  int64_t length() const { return static_cast<int64_t>(steps.size()); }
  std::span<const Use> uses_of(int64_t step) const;
  double bytes_of(int64_t step) const;  // Bytes that the kernels of the step touch.
  // Bytes that a node whose memory is so fast could touch while this step's kernels run; where they run at
  // another one, while they are launched.
  double touched_in(int64_t step, NodeId node, const Speed& speed) const;
  bool is_timed() const;  // Whether the kernels' times are known.
  // Is the history's operator this step, in a period before which so many blocks were named?
  bool is_step(int64_t step, int64_t births_before, const History& history, int64_t operation) const;
  // The key that the history gives this step; none if it touches nothing that lasts.
  std::optional<uint64_t> key_of(int64_t step) const;
  std::vector<NodeId> nodes() const;  // Nodes that the program uses, ascending.
  // Bytes that are touched at a node in a period, each block once.
  Bytes touched_at(NodeId node) const;
};

// So many periods as one. A schedule is the same in each period, and begins with the same blocks at a node as
// the one before; where a period is short that costs much of it.
Program repeated(const Program& program, int64_t times);

// Of the last `length` operators, which repeat those before them. None where each does not make as many
// blocks as the one before: a loop that goes on with other blocks than it began with is no period yet.
std::optional<Program> make_program(const History& history, int64_t length);

}  // namespace innkeeper::plan
