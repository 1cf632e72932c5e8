// Leasing for this process as it is: the machine's GPUs by telemetry, and only those that the process was
// given. What libraries call; the rest of src/lease knows neither the machine nor the environment.
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

// What a choice without a size leases: no promise, only a mark that the card is somebody's.
inline constexpr Bytes kMark = MiB(1);

// What the caching allocator of a framework may have of a lease of `memory` bytes, so that CUDA's context and
// libraries, which it does not count, have room too: all but 512 MiB, or half.
int64_t allocator_bytes(int64_t memory);

// What a managed device reads its nodes from, and what it is for a program that was given `memory` of each
// card, in each of `sharers` processes that share one. `said`: what it is already. That stays, unless it is
// auto:SIZE with a larger size, as a lease says it for a program that leases a part.
inline constexpr const char* kNodesVariable = "INNKEEPER_NODES";
std::string nodes_for(Bytes memory, int sharers, const std::optional<std::string>& said);

// What this process may choose from: once CUDA is started in it, the cards that CUDA sees, by ordinal; before
// that, what the variables said before anything was shown (shown.h). `vendor`: "nvidia", "amd", or "" for
// both. Fails (unavailable) if there is none, or if the variables' indices cannot be resolved, with the cure.
Result<std::vector<std::string>> given_here(const std::string& vendor = "");
Result<std::vector<std::string>> given_by(const telemetry::Variables& variables,
                                          const telemetry::Snapshot& cards);

// Lets the request choose from that alone (of request.allowed, if that is set), and inside the lease that the
// process was started with.
Status restrict_here(Request& request, const std::string& vendor = "");

// Waits as the request says, with a snapshot for each attempt. Fails as Arbiter::acquire does; where no GPU
// can be seen at all with what the driver says. Blocks.
Result<Lease> acquire_here(const Request& request, const Arbiter::Cancelled& cancelled = nullptr);

// The lease that this process was started with (kDescriptorVariable), or that of another descriptor, which a
// failure leaves as it was.
Result<Lease> adopt_here(std::optional<int> descriptor);

// Of a lease that this process has by fork(): it becomes the one who holds it (Arbiter::take_over). Where
// that fails (the folder is gone, or locked for long) the lease is as good: it ends with its last descriptor.
Status take_over_here(Lease& lease);

// Warnings to show when a lease in this folder is granted, one line each: processes outside this container do
// not see the lease, or a logout removes it. Empty if neither holds.
std::vector<std::string> warnings_of(const Directory& directory);

// Makes a lost lease's file again (Arbiter::restore). Fails (unavailable) if it is not lost.
Status restore_here(Lease& lease);

// Changes what a shared lease has of each of its cards (Arbiter::resize).
Status resize_here(Lease& lease, Bytes each);

}  // namespace innkeeper::lease
