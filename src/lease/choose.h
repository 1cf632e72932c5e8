// Which cards: pure functions over the ledger. First what nobody holds, then the best links between the
// chosen, then the score (most free memory, say), then the UUID, so that the same machine gives the same
// answer. Several cards are of one vendor.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "lease/ledger.h"
#include "lease/request.h"

namespace innkeeper::lease {

// A request as choosing sees it; also what a waiting record says.
struct Wish {
  int count = 1;
  Bytes memory;  // 0: not named
  bool exclusive = true;
  Bytes foreign_allowed;
};
Wish wish_of(const Request& request);
Wish wish_of(const Record& waiting);

// Higher is better. `keys` are the values of Request::key, one a card, of which "not a number" is the worst;
// empty: by `by`.
std::vector<double> scores(const Machine& machine, const Ledger& ledger, By by,
                           const std::vector<double>& keys);

bool fits(const Standing& standing, const Wish& wish);

// Could it fit on a card that nobody else used?
bool can_ever_fit(const Standing& standing, const Wish& wish);

// The most cards of one vendor for which `good` holds, by index.
size_t most_of_one_vendor(const Machine& machine, const std::function<bool(size_t)>& good);

// What of the card the wish claims.
Bytes part_of(const Standing& standing, const Wish& wish);

// Indices of cards on which it fits now, sorted by UUID; none if there are too few.
std::optional<std::vector<size_t>> choose(const Machine& machine, const Ledger& ledger, const Wish& wish,
                                          const std::vector<double>& scores);

// The cards that a wish that does not fit should wait for: those which lack least. None if it can never fit.
std::optional<std::vector<size_t>> choose_to_wait_for(const Machine& machine, const Ledger& ledger,
                                                      const Wish& wish);

}  // namespace innkeeper::lease
