// The supervisor: one small process for each job that runs. It starts the job's program, writes down that it
// began and how it ended (life.h), keeps its time limit, and passes on what its user wants. It knows nothing
// of the database. It lives on when the runner is killed.
//
//   SIGTERM          ends the job: SIGTERM to all its processes (tree.h), SIGKILL after its grace
//   SIGUSR1, SIGUSR2 stops all its processes, and lets them go on; the time limit stops as well
//
// The job, and its lease, end with the last of its processes. What its program leaves behind when it ends has
// two seconds to end too, and is ended like the job then; with `linger` it may go on, and the job ends when
// it does.
//
// Where the supervisor itself is killed its keeper (keeper.h) holds the attempt's life lock and lease: the
// job counts as running until its last process is gone, and then as interrupted.
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

struct Launch {
  JobId id = 0;
  int attempt = 0;
  std::vector<std::string> command;
  std::string directory;
  std::vector<std::string> environment;
  std::string limits;  // see limits.h
  std::optional<std::chrono::milliseconds> time_limit;
  std::chrono::milliseconds grace = kGrace;
  bool linger = false;
  lease::OpenFile life;  // made and locked
  lease::Lease lease;    // none: no cards
};

// Forks it. The life's lock and the lease are the supervisor's from then on, whatever becomes of the caller.
// On failure both are let go of.
Status start_supervisor(Launch launch, const Folder& folder, const Program& program);

}  // namespace innkeeper::queue
