// The supervisor: one small process for each job that runs. It starts the job's program, writes down that it
// began and how it ended (life.h), keeps its time limit, passes on what its user wants, and starts a runner
// where the old one is gone. It knows nothing of the database. It lives on when the runner is killed.
//
//   SIGTERM          ends the job: SIGTERM to its process group, SIGKILL after kGrace
//   SIGUSR1, SIGUSR2 stops the job's process group, and lets it go on; the time limit stops as well
//
// The job's processes keep the attempt's life lock and lease, so that both stay where the supervisor itself
// is killed: the job counts as running until its last process is gone, and then as interrupted.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "lease/lease.h"
#include "queue/folder.h"
#include "queue/job.h"
#include "queue/program.h"

namespace innkeeper::queue {

inline constexpr std::chrono::seconds kGrace{10};

struct Launch {
  JobId id = 0;
  int attempt = 0;
  std::vector<std::string> command;
  std::string directory;
  std::vector<std::string> environment;
  std::string limits;  // see limits.h
  std::optional<std::chrono::milliseconds> time_limit;
  lease::OpenFile life;  // made and locked
  lease::Lease lease;    // none: no cards
};

// Forks it. The life's lock and the lease are the supervisor's from then on, whatever becomes of the caller.
// On failure both are let go of.
Status start_supervisor(Launch launch, const Folder& folder, const Program& program);

}  // namespace innkeeper::queue
