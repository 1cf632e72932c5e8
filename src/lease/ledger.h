// What is left of each card: the snapshot of the machine, less all that is promised. Pure: no files, no
// clock.
//
//   available = min( capacity - sum(leases) - foreign,  free - sum(unmaterialised) )
//
// A lease counts in full from its grant, though its process takes seconds to allocate anything. What that
// process (or a descendant) has allocated already must not count twice, as promised and as used. So its bytes
// are matched to its leases: `unmaterialised` is what a lease has not yet allocated, `foreign` is what is
// used by nobody's lease. Where processes cannot be matched (another PID namespace, a driver that does not
// list them, a list that is empty while memory is used) a lease counts in full for kWarmUp, then what is used
// and is nobody's that we know counts as its.
//
// The first term alone says that no byte is promised twice; it needs no measurement. The second one protects
// against processes that have no lease.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/types.h"
#include "lease/card.h"
#include "lease/request.h"
#include "lease/store.h"

namespace innkeeper::lease {

inline constexpr int64_t kWarmUpNs = 60'000'000'000;
// What an idle card shows as used: the driver's own, where it does not tell it apart.
inline constexpr Bytes kUsedByNobody = MiB(512);

struct Standing {
  Bytes capacity;   // what leases may share: the card's less the driver's
  Bytes promised;   // to leases
  Bytes foreign;    // used by processes without a lease
  Bytes available;  // for a new lease; may be negative
  int leases = 0;
  int waiting = 0;      // places in the line that are kept a part of it
  bool taken = false;   // whole, by an exclusive lease or for an exclusive one in the line
  bool allowed = true;  // to this request
};

// In the order of Machine::cards.
using Ledger = std::vector<Standing>;

struct View {
  int64_t now_ns = 0;
  uint64_t pid_namespace = 0;  // the snapshot's
};

// Leases alone; who waits is not counted. Expired leases claim nothing.
Ledger make_ledger(const Machine& machine, const std::vector<Entry>& live, const View& view);

// What is left of one lease's cards for parts of it: those whose nearest live whole it is.
Ledger make_ledger_inside(const Machine& machine, const std::vector<Entry>& live, const Entry& outer,
                          const View& view);

// Marks what the request may not have.
void restrict_to(Ledger& ledger, const Machine& machine, const std::vector<std::string>& allowed);

// Takes a part of card `at`, or all of it.
void take(Standing& standing, Bytes bytes, bool exclusive, bool waiting);

// The nearest live lease of the same user that this one is a part of, which claims its bytes already; null:
// it stands for itself. `live` is sorted by id.
const Entry* whole_of(const Entry& entry, const std::vector<Entry>& live, int64_t now_ns);

std::optional<size_t> index_of(const Machine& machine, std::string_view uuid);

}  // namespace innkeeper::lease
