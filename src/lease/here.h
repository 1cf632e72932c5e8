// Leasing for this process as it is: the machine's GPUs by telemetry, restricted to those that the process
// was given. Libraries call it; the rest of src/lease knows neither the machine nor the environment.
//
//   Request request;
//   request.memory = GiB(20);
//   if (Status status = restrict_here(request); !status.ok()) ...
//   Result<Lease> lease = acquire_here(request);
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lease/arbiter.h"
#include "telemetry/visible.h"

namespace innkeeper::lease {

// Bytes that a choice without a size leases: no promise, only a mark that the GPU is in use.
inline constexpr Bytes kMark = MiB(1);

// Returns the bytes of a lease of `memory` that a framework's caching allocator may use: all but 512 MiB, or
// half. The rest is for CUDA's context and libraries, which the allocator does not count.
int64_t allocator_bytes(int64_t memory);

// Variable from which a managed device reads its nodes. nodes_for() returns its value for a program that was
// given `memory` of each GPU, in each of `sharers` processes that share one. `said`: its present value. That
// stays, unless it is auto:SIZE with a larger size, which a lease sets for a program that leases a part.
inline constexpr const char* kNodesVariable = "INNKEEPER_NODES";
std::string nodes_for(Bytes memory, int sharers, const std::optional<std::string>& said);

// Returns the GPUs from which this process may choose. Once CUDA is started in it, they are the GPUs that
// CUDA sees, by ordinal. Before that, they are those of the variables before any choice was shown (shown.h).
// `vendor`: "nvidia", "amd", or "" for both. Fails (unavailable) if there is none, or if the variables'
// indices cannot be resolved; the message names the cure.
Result<std::vector<std::string>> given_here(const std::string& vendor = "");
Result<std::vector<std::string>> given_by(const telemetry::Variables& variables,
                                          const telemetry::Snapshot& gpus);

// Restricts the request to these GPUs (of request.allowed, if that is set), inside the lease that the process
// was started with.
Status restrict_here(Request& request, const std::string& vendor = "");

// Waits as the request says, with a snapshot for each attempt. Fails as Arbiter::acquire does. If no GPU can
// be seen at all, the message is the driver's. Blocks.
Result<Lease> acquire_here(const Request& request, const Arbiter::Cancelled& cancelled = nullptr);

// Adopts the lease that this process was started with (kDescriptorVariable), or that of another descriptor. A
// failure leaves that descriptor as it was.
Result<Lease> adopt_here(std::optional<int> descriptor);

// Makes this process the holder of a lease that it has by fork() (Arbiter::take_over). If that fails (the
// directory is gone, or locked for long), the lease is as good: it ends with its last descriptor.
Status take_over_here(Lease& lease);

// Returns warnings to show when a lease in this directory is granted, one per line. They say that processes
// outside this container do not see the lease, or that a logout removes it. Empty if neither holds.
std::vector<std::string> warnings_of(const Directory& directory);

// Creates a lost lease's file again (Arbiter::restore). Fails (unavailable) if it is not lost.
Status restore_here(Lease& lease);

// Changes a shared lease's bytes on each of its GPUs (Arbiter::resize).
Status resize_here(Lease& lease, Bytes each);

}  // namespace innkeeper::lease
