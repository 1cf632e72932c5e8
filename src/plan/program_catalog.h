// The programs that the planner knows, and the search for the one that the program runs again.
//
// An index has the key of each step (History::Operator::key) that uses a lasting block. A search compares the
// last operators with the positions of the last operator's key: O(1) expected if no position has the key, and
// at most kMostPositions comparisons of kRejoinLength operators.
//
// Ownership: owns the programs. Their addresses stay valid until remove().
// Thread safety: none; the planner's owner guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>
#include <utility>

#include "plan/history.h"
#include "plan/known_program.h"
#include "plan/program.h"

namespace innkeeper::plan {

class ProgramCatalog {
 public:
  // find() does not find the program until index().
  KnownProgram& add(Program period);
  void index(KnownProgram& known);
  void remove(const KnownProgram& known);
  // The oldest program, if there are more than kMostPrograms; else null.
  const KnownProgram* surplus() const;
  // Where the program is if it runs a known one again: the position after its last operator.
  // Requires: an operator has ended.
  std::optional<PlanPosition> find(const History& history) const;

  template <typename Visit>
  void each(const Visit& visit) {
    for (CatalogEntry& entry : entries_) visit(entry.known);
  }

 private:
  struct CatalogEntry {
    explicit CatalogEntry(Program period) : known(std::move(period)) {}
    KnownProgram known;
    bool indexed = false;  // Its steps stand in steps_.
  };
  struct IndexedStep {
    KnownProgram* known = nullptr;
    int64_t step = 0;
  };
  static constexpr size_t kMostPrograms = 8;
  // Operators that must agree with a known program before it is followed again.
  static constexpr int64_t kRejoinLength = 8;
  // Positions with one key that are compared when a program is looked for.
  static constexpr int kMostPositions = 64;

  std::list<CatalogEntry> entries_;                       // Newest first.
  std::unordered_multimap<uint64_t, IndexedStep> steps_;  // By key of an operator.
};

}  // namespace innkeeper::plan
