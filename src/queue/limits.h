// What a process hands on to those it starts beside its environment: the soft resource limits (ulimit -S),
// the umask and the nice value. Kept with a job, so that it starts as from the shell it was added in and not
// as from the one that happened to start the runner. Hard limits cannot be raised again: those of who started
// the runner stay.
#pragma once

#include <string>
#include <string_view>

namespace innkeeper::queue {

// This process's, as text.
std::string own_limits();

// Makes them this process's, as far as that is allowed; what is no such text changes nothing. May be called
// between fork() and exec(), if the text was made before.
void take_limits(std::string_view text);

// Lets this process do what its hard limits allow: the soft ones of whoever started it are not meant for it.
void raise_limits();

}  // namespace innkeeper::queue
