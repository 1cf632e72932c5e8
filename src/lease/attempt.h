// One attempt to get a lease: the request, the machine, and the leases found under the lock. Internal.
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
  // Signs the record and evaluates the request's key, before the lock. `asked_ns`: time of the request by the
  // machine's clock, which determines its place in the line.
  Attempt(const Request& request, const Machine& machine, int64_t asked_ns);

  const Request& request;
  const Machine& machine;
  const int64_t asked_ns;
  const Wish wish;
  std::vector<double> keys;
  Record record;  // The signed record, without claims.

  // The following fields are found under the lock.
  std::vector<Entry> live;
  Ledger ledger;  // Free space per GPU, after earlier places and restricted to the allowed GPUs.
  Turn turn;      // Turn of the request in the line.
  bool in_line = false;

  // Fills `ledger` from `live`. `place`: the caller's own place, if it has one. Fails if the lease of which
  // it requests a part is over.
  Status weigh(const std::optional<LeaseFile>& place);
  // Returns whether enough GPUs could fit the request if they were empty. In line, GPUs of unknown
  // memory count too.
  bool ever() const;

  // Returns the record of the lease on these GPUs, or of the place that waits for them.
  Record granted(const std::vector<size_t>& gpus) const;
  Record waiting(const std::vector<size_t>& gpus) const;

  // Describes the restrictions that keep GPUs from the request: its outer lease and environment variables.
  std::string limits() const;
  // Returns the reason of the refusal, with the numbers. Slow (user names): call it after the lock.
  Status refusal() const;
};

}  // namespace innkeeper::lease
