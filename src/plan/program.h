// The recorded accesses of one period, with blocks named so that the names hold in each period: a lasting
// block by its name, a block that each period creates by its ordinal among the period's births.
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
  // Periods since its block was made. `births`: births per period.
  int64_t age(int64_t births) const;
  // Its name `periods` periods later.
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
  // Bytes that a node with this speed could touch while the step's kernels run. If they run at another node,
  // while they are launched.
  double touched_in(int64_t step, NodeId node, const Speed& speed) const;
  bool is_timed() const;  // Whether the kernels' times are known.
  // Whether the history's operator is this step, in a period before which `births_before` blocks were named.
  bool is_step(int64_t step, int64_t births_before, const History& history, int64_t operation) const;
  // The key that the history gives this step; none if it touches no lasting block.
  std::optional<uint64_t> key_of(int64_t step) const;
  std::vector<NodeId> nodes() const;  // Nodes that the program uses, ascending.
  // Bytes that are touched at a node in a period, each block once.
  Bytes touched_at(NodeId node) const;
};

// `times` periods as one. A schedule is the same in each period, and begins and ends with the same blocks at
// a node, which costs much of a short period.
Program repeated(const Program& program, int64_t times);

// The program of the last `length` operators. Requires: they repeat those before them. None if an operator
// does not make as many blocks as the one that it repeats: the loop has not settled on its blocks yet.
std::optional<Program> make_program(const History& history, int64_t length);

}  // namespace innkeeper::plan
