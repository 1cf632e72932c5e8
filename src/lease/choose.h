// Chooses GPUs: pure functions over the ledger. Unclaimed GPUs go first, then the best links between the
// chosen ones, then the score (most free memory, say). The UUID decides last, so that the same machine gives
// the same answer. Several GPUs are always of one vendor.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "lease/ledger.h"
#include "lease/request.h"

namespace innkeeper::lease {

// The parts of a request that matter for choosing; a waiting record stores the same.
struct Wish {
  int count = 1;
  Bytes memory;  // Bytes on each GPU; 0: not specified.
  bool exclusive = true;
  Bytes foreign_allowed;
};
Wish wish_of(const Request& request);
Wish wish_of(const Record& waiting);

// Scores of the GPUs; higher is better. `keys` holds the values of Request::key, one per GPU, of which NaN is
// the worst; empty: scores follow `by`.
std::vector<double> scores(const Machine& machine, const Ledger& ledger, By by,
                           const std::vector<double>& keys);

bool fits(const Standing& standing, const Wish& wish);

// Returns whether the wish would fit on the GPU without any other use.
bool can_ever_fit(const Standing& standing, const Wish& wish);

// Returns the largest number of GPUs of one vendor for which `good` holds, by index.
size_t most_of_one_vendor(const Machine& machine, const std::function<bool(size_t)>& good);

// Returns the bytes of the GPU that the wish claims.
Bytes part_of(const Standing& standing, const Wish& wish);

// Returns indices of GPUs on which the wish fits now, sorted by UUID; none: there are too few.
std::optional<std::vector<size_t>> choose(const Machine& machine, const Ledger& ledger, const Wish& wish,
                                          const std::vector<double>& scores);

// Returns the GPUs that an unfitting wish should wait for: those that lack least. None: it can never fit.
std::optional<std::vector<size_t>> choose_to_wait_for(const Machine& machine, const Ledger& ledger,
                                                      const Wish& wish);

}  // namespace innkeeper::lease
