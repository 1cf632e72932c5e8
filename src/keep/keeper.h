// The keeper's part of attend.h: it starts the command, and holds the lease until no process
// is left below it.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/status.h"
#include "keep/attend.h"
#include "keep/signals.h"

namespace innkeeper::keep {

struct Keeper {
  pid_t pid = 0;
  int channel = -1;  // Socket for the messages of channel.h.
};

// Forks the keeper, which forks the command. Requires: `inherited` was made, and the lease is
// shared through exec().
Result<Keeper> start_keeper(lease::Arbiter& arbiter, lease::Lease& lease, const std::string& title,
                            const Become& become, const Inherited& inherited);

}  // namespace innkeeper::keep
