// Stands in line for the cards of one job, on a thread of its own, while the runner goes on: so that a job
// that needs much is not starved by other users' small ones (lease/arbiter.h).
//
// Used by the runner's thread alone.
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

  // The job it stands for, or is just leaving the line for; 0: none.
  JobId job() const { return job_; }
  // Requires: job() == 0.
  void stand(JobId job, const lease::Arbiter& arbiter, lease::Request request, lease::Arbiter::Look look);
  // Leaves the line; within a second poll() says so.
  void leave() { cancelled_ = true; }
  // What came of it, once; job() is 0 then. A lease that was given although it left is given back.
  std::optional<Result<lease::Lease>> poll();
  // Can be read when there is something to poll.
  int descriptor() const { return event_; }

 private:
  JobId job_ = 0;
  int event_ = -1;
  std::atomic<bool> cancelled_ = false;
  std::atomic<bool> over_ = false;  // released after `outcome_` was written
  std::optional<Result<lease::Lease>> outcome_;
  std::thread thread_;
};

}  // namespace innkeeper::queue
