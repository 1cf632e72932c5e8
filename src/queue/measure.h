// Measurement of the GPU memory that a job uses, as the driver reports it now.
#pragma once

#include <map>
#include <vector>

#include "lease/gpu.h"
#include "queue/job.h"

namespace innkeeper::queue {

// A running job and its supervisor, from which all of its processes descend.
struct Measurable {
  JobId id = 0;
  int attempt = 0;
  lease::ProcessKey supervisor;
};

// Returns for each job that uses a GPU its memory on the GPU where it uses most. Pure.
std::map<JobId, Bytes> measure(const std::vector<Measurable>& jobs, const lease::Machine& machine);

// Returns the memory to request for the next run: the peak plus a tenth, rounded up to 256 MiB.
Bytes propose(Bytes peak);

}  // namespace innkeeper::queue
