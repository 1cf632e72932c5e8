// How much memory of its cards a job really uses, as the driver says now.
#pragma once

#include <map>
#include <vector>

#include "lease/card.h"
#include "queue/job.h"

namespace innkeeper::queue {

// A running job, and the process that all of its processes descend from.
struct Measurable {
  JobId id = 0;
  int attempt = 0;
  lease::ProcessKey supervisor;
};

// Of each job that uses a card: what it uses of the card of which it uses most. Pure.
std::map<JobId, Bytes> measure(const std::vector<Measurable>& jobs, const lease::Machine& machine);

// What to ask for the next time: the peak and a tenth, in steps of 256 MiB.
Bytes propose(Bytes peak);

}  // namespace innkeeper::queue
