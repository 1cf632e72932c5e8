// Attributes, apart from the environment, that a process passes to its children: soft resource limits (ulimit
// -S), the umask and the nice value. They are stored with a job. It then starts as from the shell that added
// it, not as from the shell that happened to start the runner. Hard limits cannot be raised again: those of
// the runner's starter apply.
#pragma once

#include <string>
#include <string_view>

namespace innkeeper::queue {

// Returns the attributes of this process as text.
std::string own_limits();

// Applies the attributes to this process, as far as the system allows. Text in another form changes nothing.
// May be called between fork() and exec() if the text was made before.
void take_limits(std::string_view text);

// Raises this process's soft limits to its hard limits: the soft limits of its starter are not meant for it.
void raise_limits();

}  // namespace innkeeper::queue
