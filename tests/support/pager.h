// A node that carries a schedule out, with demand paging for blocks that the schedule misses: for tests of
// plans.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "plan/program.h"
#include "plan/schedule.h"

namespace innkeeper::test {

class Pager {
 public:
  Pager(const plan::Program& program, Bytes space) : program_(program), space_(space.count()) {}

  void period(const std::vector<plan::PlannedMove>& moves, int64_t births_before) {
    demanded_ = evicted_ = 0;
    size_t next = 0;
    for (int64_t step = 0; step < program_.length(); ++step) {
      for (const plan::Program::Use& use : program_.uses_of(step)) demand(use, births_before);
      ASSERT_LE(used_, space_) << "step " << step;
      for (const plan::Program::Death& death : program_.deaths)
        if (death.after == step) drop(death.slot.name(births_before));
      for (; next < moves.size() && moves[next].after == step; ++next) {
        const plan::Name name = moves[next].slot.name(births_before);
        if (!moves[next].arrives) {
          drop(name);
          if (moves[next].discards) discarded_.insert(name);
        } else if (here_.count(name) == 0) {
          ASSERT_LE(used_ + moves[next].size.count(), space_) << "no room for what is planned, step " << step;
          put(name, moves[next].size.count());
        }
      }
    }
  }

  int demanded_ = 0, evicted_ = 0;
  int recomputed_ = 0;  // Recomputed results in all periods.

 private:
  void put(plan::Name name, int64_t size) {
    here_[name] = size;
    known_.insert(name);
    used_ += size;
  }
  void drop(plan::Name name) {
    const auto found = here_.find(name);
    if (found == here_.end()) return;
    used_ -= found->second;
    here_.erase(found);
  }
  void demand(const plan::Program::Use& use, int64_t births_before) {
    const plan::Name name = use.slot.name(births_before);
    if (here_.count(name) != 0) return;
    if (discarded_.erase(name) != 0) {
      make_again(use, births_before);
    } else if (known_.count(name) != 0) {
      ++demanded_;
    }
    const int64_t size = round_up(use.size).count();
    while (used_ + size > space_) {
      ++evicted_;
      drop(here_.begin()->first);
    }
    put(name, size);
  }

  // The operands of the result's operator must be present.
  void make_again(const plan::Program::Use& what, int64_t births_before) {
    ++recomputed_;
    for (int64_t step = 0; step < program_.length(); ++step) {
      const auto uses = program_.uses_of(step);
      const auto is_born = [&](const plan::Program::Use& use) {
        return use.pure && !use.slot.lasting && use.slot.number == what.slot.number;
      };
      if (std::none_of(uses.begin(), uses.end(), is_born)) continue;
      for (const plan::Program::Use& use : uses)
        if (!use.pure) demand(use, births_before);
      return;
    }
    ADD_FAILURE() << "nothing makes slot " << what.slot.number;
  }

  const plan::Program& program_;
  const int64_t space_;
  int64_t used_ = 0;
  std::map<plan::Name, int64_t> here_;
  std::set<plan::Name> known_;
  std::set<plan::Name> discarded_;
};

}  // namespace innkeeper::test
