// Waits in line for the GPUs of one job, on a thread of its own, while the runner goes on. A job that needs
// many GPUs is therefore not starved by small jobs of other users (lease/arbiter.h).
//
// Only the runner's thread uses it.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <thread>

#include "lease/arbiter.h"
#include "queue/job.h"

namespace innkeeper::queue {

class Line {
 public:
  Line();
  ~Line();
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  // The job that waits in line or is leaving it; 0: none.
  JobId job() const { return job_; }
  // Requires: job() == 0.
  void stand(JobId job, const lease::Arbiter& arbiter, lease::Request request, lease::Arbiter::Look look);
  // Leaves the line; poll() reports it within a second.
  void leave() { cancelled_ = true; }
  // Returns the outcome once; job() is 0 from then on. A lease that was granted after leave() is released.
  std::optional<Result<lease::Lease>> poll();
  // Becomes readable when poll() has an outcome.
  int descriptor() const { return event_; }

 private:
  JobId job_ = 0;
  int event_ = -1;
  std::atomic<bool> cancelled_ = false;
  std::atomic<bool> over_ = false;  // Released after `outcome_` was written.
  std::optional<Result<lease::Lease>> outcome_;
  std::thread thread_;
};

}  // namespace innkeeper::queue
