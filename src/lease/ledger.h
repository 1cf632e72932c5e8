// Free space of each GPU: the snapshot of the machine minus all promises. Pure: it uses no
// files and no clock.
//
//   available = min( capacity - sum(leases) - foreign,  free - sum(unmaterialised) )
//
// A lease counts in full from its grant, though its process takes seconds to allocate memory. Memory that its
// process (or a descendant) has allocated must not count twice, as promised and as used. Therefore each
// process's bytes are matched to its leases. `unmaterialised` is the part of a lease that is not yet
// allocated, `foreign` is memory used outside all leases. Processes sometimes cannot be matched. They are in
// another PID namespace, the driver does not list them, or the list is empty while memory is used. A lease
// then counts in full for kWarmUpNs. After that, unattributed used memory counts as the lease's.
//
// The first term alone ensures that no byte is promised twice; it needs no measurement. The second one
// protects against processes that have no lease.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/types.h"
#include "lease/gpu.h"
#include "lease/request.h"
#include "lease/store.h"

namespace innkeeper::lease {

inline constexpr int64_t kWarmUpNs = 60'000'000'000;
// Memory that an idle GPU shows as used: the driver's own, where it is not reported separately.
inline constexpr Bytes kUsedByNobody = MiB(512);

struct Standing {
  Bytes capacity;   // Bytes that leases may share: the GPU's memory minus the driver's.
  Bytes promised;   // Bytes promised to leases.
  Bytes foreign;    // Bytes used by processes without a lease.
  Bytes available;  // Bytes available to a new lease; may be negative.
  int leases = 0;
  int waiting = 0;  // Number of places in the line for which a part is kept free.
  // True: the whole GPU is taken by an exclusive lease, or kept free for one in the line.
  bool taken = false;
  bool allowed = true;  // True: this request may use the GPU.
};

// Entries in the order of Machine::gpus.
using Ledger = std::vector<Standing>;

struct View {
  int64_t now_ns = 0;
  uint64_t pid_namespace = 0;  // PID namespace of the snapshot.
};

// Makes a ledger of leases only; places in the line are not counted. Expired leases claim no bytes.
Ledger make_ledger(const Machine& machine, const std::vector<Entry>& live, const View& view);

// Makes the ledger of free space inside the lease `outer`, for parts of it: leases whose nearest
// live whole it is.
Ledger make_ledger_inside(const Machine& machine, const std::vector<Entry>& live, const Entry& outer,
                          const View& view);

// Marks the GPUs that the request may not use.
void restrict_to(Ledger& ledger, const Machine& machine, const std::vector<std::string>& allowed);

// Takes a part of a GPU, or all of it.
void take(Standing& standing, Bytes bytes, bool exclusive, bool waiting);

// Returns the nearest live lease of the same user that this one is a part of, and that already claims its
// bytes. Null: it is no part. `live` is sorted by id.
const Entry* whole_of(const Entry& entry, const std::vector<Entry>& live, int64_t now_ns);

std::optional<size_t> index_of(const Machine& machine, std::string_view uuid);

}  // namespace innkeeper::lease
