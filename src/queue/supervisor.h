// The supervisor: one small process for each running job. It starts the job's program, records that it began
// and how it ended (life.h), enforces its time limit, and applies its user's requests. It does not use the
// database. It lives on when the runner is killed.
//
//   SIGTERM          ends the job: SIGTERM to all its processes (tree.h), SIGKILL after its grace
//   SIGUSR1, SIGUSR2 stops all its processes, and continues them; its time limit is suspended meanwhile
//
// The job and its lease end with the last of its processes. Processes that its program leaves
// behind have two seconds to end, and are then ended like the job. With `linger` they may go on,
// and the job ends when they do.
//
// If the supervisor itself is killed, its keeper (keeper.h) holds the attempt's life lock and lease. The job
// counts as running until its last process is gone, and then as interrupted.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "lease/lease.h"
#include "queue/job.h"
#include "queue/program.h"
#include "queue/queue_directory.h"

namespace innkeeper::queue {

struct Launch {
  JobId id = 0;
  int attempt = 0;
  std::vector<std::string> command;
  std::string directory;
  std::vector<std::string> environment;
  std::string limits;  // Soft limits as text; see limits.h.
  std::optional<std::chrono::milliseconds> time_limit;
  std::chrono::milliseconds grace = kGrace;
  bool linger = false;
  lease::OpenFile life;  // The life file, created and locked.
  lease::Lease lease;    // Lease on the job's GPUs; not held: the job has none.
};

// Forks the supervisor, which owns the life lock and the lease from then on, whatever becomes of the
// caller. On failure both are released.
Status start_supervisor(Launch launch, const QueueDirectory& directory, const Program& program);

}  // namespace innkeeper::queue
