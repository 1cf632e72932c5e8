// One attempt to get a lease: what is asked, of which machine, and what was found under the lock. Internal.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lease/choose.h"
#include "lease/ledger.h"
#include "lease/places.h"
#include "lease/request.h"
#include "lease/store.h"

namespace innkeeper::lease {

struct Attempt {
  // Signs the record and asks the request's key: before the lock. `asked_ns`: when the request was made, by
  // which its place in the line goes; by the machine's clock.
  Attempt(const Request& request, const Machine& machine, int64_t asked_ns);

  const Request& request;
  const Machine& machine;
  const int64_t asked_ns;
  const Wish wish;
  std::vector<double> keys;
  Record record;  // signed; without claims

  // Found under the lock.
  std::vector<Entry> live;
  Ledger ledger;  // with places ahead counted, and restricted to what is allowed
  Turn turn;      // in the line
  bool in_line = false;

  // Fills `ledger` from `live`. `place` is the caller's own, if it has one. Fails if the lease that it asks a
  // part of is over.
  Status weigh(const std::optional<LeaseFile>& place);
  bool ever() const;  // enough cards could fit it, were they empty; in line also those of unknown memory

  // The record of the lease on these cards, or of the place that waits for them.
  Record granted(const std::vector<size_t>& cards) const;
  Record waiting(const std::vector<size_t>& cards) const;

  // What keeps GPUs of the machine from the request: the lease that it is a part of, and variables.
  std::string limits() const;
  // Why not, with the numbers. Slow (names of users): after the lock.
  Status refusal() const;
};

}  // namespace innkeeper::lease
